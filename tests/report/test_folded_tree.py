"""The folded tree is the prefix tree: its nodes are the maximal sets of completions that share a prefix."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit.prefix_tree import prefix_tree, tree_sums
from tempo_trl.report.folded_tree import branches, fold

GROUPS = st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=7)


@given(GROUPS)
def test_every_state_lies_in_one_node_with_exactly_the_completions_that_pass_it(rows):
    nodes = fold(rows)
    owners = {}
    for node in nodes:
        for row in node.rows:
            for t in range(node.begin, node.end):
                owners[(row, t)] = node
    for row, tokens in enumerate(rows):
        for t in range(len(tokens)):
            through = {i for i, other in enumerate(rows) if other[: t + 1] == tokens[: t + 1]}
            assert set(owners[(row, t)].rows) == through


@given(GROUPS)
def test_nodes_are_maximal_and_parents_come_first(rows):
    nodes = fold(rows)
    assert nodes[0][:4] == (-1, tuple(range(len(rows))), 0, 0)
    for i, node in enumerate(nodes[1:], start=1):
        assert node.parent < i
        assert node.begin == nodes[node.parent].end < node.end
        assert set(node.rows) <= set(nodes[node.parent].rows)
        after = {tuple(rows[row][node.end : node.end + 1]) for row in node.rows}
        assert len(after) > 1 or after == {()}


@given(GROUPS)
def test_children_lie_one_level_further_one_below_the_other_within_their_parent(rows):
    nodes = fold(rows)
    for i, node in enumerate(nodes):
        children = [child for child in nodes if child.parent == i]
        assert all(child.level == node.level + 1 for child in children)
        bounds = [(child.top, child.top + len(child.rows)) for child in children]
        expected = node.top
        for top, bottom in bounds:
            assert top == expected
            expected = bottom
        assert expected + len(node.ended) == node.top + len(node.rows)


@given(GROUPS)
def test_every_completion_ends_once(rows):
    nodes = fold(rows)
    ended = [(row, node.end) for node in nodes for row in node.ended]
    assert sorted(ended) == [(row, len(tokens)) for row, tokens in enumerate(rows)]


@given(GROUPS)
def test_branches_are_counted_as_the_metrics_count_them(rows):
    width = max(1, max(map(len, rows)))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    tree = prefix_tree(ids, torch.tensor([len(row) for row in rows]), len(rows))
    nodes = fold(rows)
    branching = branches(nodes) > 1
    sums = tree_sums(tree, slice(0, 1))
    assert branching.sum() == sums["branch_nodes"][0]
    assert sum(node.end for node, b in zip(nodes, branching, strict=True) if b) == sums["branch_depth"][0]
    assert sum(node.end - node.begin for node in nodes) == sums["unique_tokens"][0]
