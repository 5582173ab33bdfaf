"""The folded tree is the prefix tree: its nodes are the maximal sets of completions that share a prefix."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit.prefix_tree import prefix_tree, tree_sums
from tempo_trl.report.folded_tree import branches, fold

GROUPS = st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=7)


@given(GROUPS)
def test_every_state_lies_in_one_node_with_exactly_the_completions_that_pass_it(rows):
    nodes = fold(rows)
    owners = {(row, t): node for node in nodes for row in node.rows for t in range(node.begin, node.end)}
    for row, tokens in enumerate(rows):
        for t in range(len(tokens)):
            through = {i for i, other in enumerate(rows) if other[: t + 1] == tokens[: t + 1]}
            assert set(owners[(row, t)].rows) == through
    ended = [(row, node.end) for node in nodes for row in node.ended]
    assert sorted(ended) == [(row, len(tokens)) for row, tokens in enumerate(rows)]


@given(GROUPS)
def test_nodes_are_maximal_and_children_lie_one_below_the_other_within_their_parent(rows):
    nodes = fold(rows)
    assert nodes[0][:4] == (-1, tuple(range(len(rows))), 0, 0)
    for i, node in enumerate(nodes):
        after = {tuple(rows[row][node.end : node.end + 1]) for row in node.rows}
        assert i == 0 or len(after) > 1 or after == {()}
        bottom = node.top
        for child in (child for child in nodes[i + 1 :] if child.parent == i):
            assert (child.level, child.top, child.begin) == (node.level + 1, bottom, node.end)
            assert child.end > child.begin and set(child.rows) <= set(node.rows)
            bottom += len(child.rows)
        assert bottom + len(node.ended) == node.top + len(node.rows)


@given(GROUPS)
def test_branches_are_counted_as_the_metrics_count_them(rows):
    width = max(1, max(map(len, rows)))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    sums = tree_sums(
        prefix_tree(ids, torch.tensor([len(row) for row in rows]), len(rows)), np.ones(len(rows), dtype=bool)
    )
    nodes = fold(rows)
    branching = branches(nodes) > 1
    assert branching.sum() == sums["branch_nodes"][0]
    assert sum(node.end for node, b in zip(nodes, branching, strict=True) if b) == sums["branch_depth"][0]
    assert sum(node.end - node.begin for node in nodes) == sums["unique_tokens"][0]
