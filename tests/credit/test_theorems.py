"""What follows from the definitions: reductions, equivariances, and the sums over the edges of the tree."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit import build_prefix_tree, prefix_values, td_errors, tempo_advantages
from tempo_trl.credit.advantages import flat_groups, outcome_and_td_errors

from .groups import as_tensors, common, groups

FINITE = st.sampled_from([0.0, 1.0, 0.25, -2.0])
EXACT = {"rtol": 1e-5, "atol": 1e-5}


def single_group(**options):
    return groups(min_size=2, rewards=FINITE, **options).map(
        lambda case: (case[0][: case[2]], case[1][: case[2]], case[2])
    )


def edges(rows):
    """Every (prefix s, token a) of a group with the rows that take it."""
    taken = {}
    for i, row in enumerate(rows):
        for t, token in enumerate(row):
            taken.setdefault((tuple(row[:t]), token), []).append(i)
    return taken


@given(single_group())
def test_grpo_already_aggregates_on_the_tree_and_tempo_adds_the_td_of_each_edge(case):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    values = prefix_values(ids, lengths, reward_tensor, size)
    grpo = tempo_advantages(ids, lengths, reward_tensor, size, scale_rewards="none", td_coef=0.0)
    tempo = tempo_advantages(ids, lengths, reward_tensor, size, scale_rewards="none", td_coef=2.0)
    for (prefix, _), through in edges(rows).items():
        t, first = len(prefix), through[0]
        gain_over_root = values[first, t + 1] - values[first, 0]
        td = values[first, t + 1] - values[first, t]
        torch.testing.assert_close(grpo[through, t].sum(), len(through) * gain_over_root, **EXACT)
        torch.testing.assert_close(tempo[through, t].sum(), len(through) * (gain_over_root + 2.0 * td), **EXACT)


@given(single_group(ends_with_eos=True))
def test_td_errors_telescope_to_the_outcome_of_a_completion_that_ends_alone(case):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    signal = td_errors(prefix_values(ids, lengths, reward_tensor, size), lengths).sum(dim=1)
    for i, row in enumerate(rows):
        if rows.count(row) == 1 and not any(other[: len(row)] == row for other in rows if other is not row):
            assert math.isclose(signal[i], rewards[i] - sum(rewards) / size, abs_tol=1e-5)


@given(groups(rewards=FINITE))
def test_td_errors_are_zero_wherever_nobody_leaves(case):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    td = td_errors(prefix_values(ids, lengths, reward_tensor, size), lengths)
    for i, row in enumerate(rows):
        group = rows[i // size * size : (i // size + 1) * size]
        for t in range(len(row)):
            if sum(r[:t] == row[:t] for r in group) == sum(r[: t + 1] == row[: t + 1] for r in group):
                assert td[i, t] == 0.0


@given(groups(rewards=FINITE))
def test_the_tree_counts_states_branches_and_duplicates(case):
    rows, _, size = case
    ids, lengths, _ = as_tensors(rows, [0.0] * len(rows))
    tree = build_prefix_tree(ids.numpy(), lengths.numpy(), size)
    groups_of_rows = [rows[start : start + size] for start in range(0, len(rows), size)]
    states = sum(len({tuple(row[:t]) for row in group for t in range(1, len(row) + 1)}) for group in groups_of_rows)
    assert lengths.sum() - tree.lcp.clip(min=0).sum() == states

    children = sorted(len(tokens) for group in groups_of_rows for tokens in children_of_states(group).values())
    assert sorted(n for n in tree.num_children() if n > 1) == [n for n in children if n > 1]

    assert (tree.num_children() > 1).sum() <= len(groups_of_rows) * (size - 1)
    closest = np.empty(len(rows), dtype=int)
    closest[tree.order] = tree.longest_shared_prefix
    for i, row in enumerate(rows):
        group = [r for j, r in enumerate(rows) if j // size == i // size and j != i]
        assert closest[i] == max((common(row, other) for other in group), default=-1)


@given(groups())
def test_two_routes_to_the_td_errors_agree_bit_for_bit(case):
    rows, rewards, size = case
    ids, lengths, outcome = as_tensors(rows, rewards)
    tree = build_prefix_tree(ids.numpy(), lengths.numpy(), size)
    spread, td = outcome_and_td_errors(tree, outcome, ids.shape[1])
    silent = flat_groups(outcome, size).repeat_interleave(size) | outcome.isnan()
    dense = td_errors(prefix_values(ids, lengths, outcome, size), lengths).masked_fill(silent[:, None], 0.0)
    assert torch.equal(td, dense)
    inside = (torch.arange(ids.shape[1]) < lengths[:, None]) & ~silent[:, None]
    assert torch.equal(spread, torch.where(inside, outcome[:, None], 0.0))


def children_of_states(group) -> dict[tuple, set]:
    children = {}
    for row in group:
        for t, token in enumerate(row):
            children.setdefault(tuple(row[:t]), set()).add(token)
    return children
