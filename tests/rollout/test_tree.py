"""A grown tree and its tensors: weights, branches, and the same values from the ids alone."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl import Batch
from tempo_trl.credit import prefix_values
from tempo_trl.credit.advantages import outcome_and_td_errors
from tempo_trl.credit.grown_tree import GrownTree, Segment, branches
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.siblings import segment_values
from tempo_trl.methods.tempo import tempo_credit

from ..credit.groups import as_tensors
from ..credit.test_siblings import shapes, tree_of

trees = shapes.filter(bool).map(tree_of)


def rewarded(tree):
    return torch.tensor([float(hash((leaf, 3)) % 5) for leaf in tree.rows])


def group_of(tree: GrownTree) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The completions of a tree as a group of rows with rewards."""
    return *as_tensors([tree.completion_ids(leaf) for leaf in tree.rows], rewarded(tree).tolist()), len(tree.rows)


def ends_of_segments(tree: GrownTree) -> list[tuple[int, int, int]]:
    """(row, tokens before its end, segment) for each segment of each row."""
    return [
        (row, sum(len(tree.segments[above].token_ids) for above in tree.path(segment)), segment)
        for row, leaf in enumerate(tree.rows)
        for segment in tree.path(leaf)
    ]


@given(trees)
def test_weights_add_up_to_one_and_are_shared_by_the_rows_of_a_leaf(tree):
    weights = tree.leaf_weights()
    assert weights.sum().item() == pytest.approx(1.0)
    tree.rows.append(tree.rows[0])
    repeated = tree.leaf_weights()
    assert repeated[0] == repeated[-1] == pytest.approx(weights[0].item() / 2)


@given(trees)
def test_values_from_the_ids_are_those_of_the_explicit_tree(tree):
    ids, lengths, rewards, size = group_of(tree)
    grown = branches([tree], ids.shape[1])
    values = prefix_values(ids, lengths, rewards, size, weights=tree.leaf_weights())
    explicit = segment_values(grown.parent, grown.leaf, rewards, "children").float()
    for row, end, segment in ends_of_segments(tree):
        torch.testing.assert_close(values[row, end], explicit[segment])
    torch.testing.assert_close(values[:, 0], explicit[-1].expand(size))


@given(trees)
def test_td_errors_of_a_weighted_group_telescope_and_its_outcome_sums_to_the_edge_s_value(tree):
    """Theorems 1 and 3 of TEMPO hold with weights: see the page on the methods' formulas."""
    ids, lengths, rewards, size = group_of(tree)
    weights = tree.leaf_weights()
    values = prefix_values(ids, lengths, rewards, size, weights=weights)
    outcome, td = outcome_and_td_errors(prefix_tree(ids, lengths, size), rewards, ids.shape[1], weights)
    share = size * weights.float()[:, None]
    flat = bool((rewards == rewards[0]).all())
    for row in range(size):
        expected = 0.0 if flat else (rewards[row] - values[row, 0]).item()
        assert td[row].sum().item() == pytest.approx(expected, abs=1e-5)
    for row, end, segment in ends_of_segments(tree):
        through = torch.tensor([segment in tree.path(leaf) for leaf in tree.rows])
        summed = (share * td)[through, end - 1].sum() / size
        delta = 0.0 if flat else (values[row, end] - values[row, end - 1]).item()
        assert summed.item() == pytest.approx(weights[through].sum().item() * delta, abs=1e-5)
        expected = weights[through].sum().item() * (0.0 if flat else (values[row, end] - values[row, 0]).item())
        assert ((share * outcome)[through, end - 1].sum() / size).item() == pytest.approx(expected, abs=1e-5)


@given(st.lists(trees, min_size=1, max_size=3))
def test_the_tensors_of_a_batch_name_each_token_s_segment(forest):
    width = max(len(tree.completion_ids(leaf)) for tree in forest for leaf in tree.rows)
    grown = branches(forest, width)
    rows = [(tree, leaf) for tree in forest for leaf in tree.rows]
    offsets = dict(zip(map(id, forest), itertools.accumulate([0, *(len(t.segments) for t in forest)]), strict=False))
    for (tree, leaf), segment, end in zip(rows, grown.segment.tolist(), grown.leaf.tolist(), strict=True):
        named = [offsets[id(tree)] + s for s in tree.path(leaf) for _ in tree.segments[s].token_ids]
        assert segment == named + [-1] * (width - len(named))
        assert end == offsets[id(tree)] + leaf
    assert grown.parent.max() < len(grown.parent) + len(forest)


@pytest.mark.parametrize("forced_tokens", ["keep", "reweight", "mask"])
def test_forced_tokens_are_treated_also_on_trees_whose_leaves_have_equal_weights(forced_tokens):
    tree = GrownTree([Segment(-1, [4, 5]), Segment(-1, [6, 7], forced=True, forced_ratio=0.25)], [0, 1])
    ids, lengths, rewards = as_tensors([[4, 5], [6, 7]], [1.0, 0.0])
    turns, none = torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    outcome = rewards - 0.5
    batch = Batch(
        ids, lengths, rewards, rewards[:, None], outcome, outcome, 2, none, turns == 0, turns, turns, none == 0,
        tree_rollouts=[tree],
    )  # fmt: skip
    assert batch.weights is None
    credit = tempo_credit(batch, 0.0, forced_tokens)
    expected = torch.tensor([[0.5, 0.5], [-0.125 if forced_tokens == "reweight" else -0.5, -0.5]])
    kept = torch.ones(2, 2, dtype=torch.bool) if credit.loss_mask is None else credit.loss_mask
    assert kept.tolist() == [[True, True], [forced_tokens != "mask", True]]
    torch.testing.assert_close(credit.advantages.expand(2, 2)[kept], expected[kept])
