"""Prefix baselines: the definition in loops, reductions, equivariances, and unbiasedness by exact expectation."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit import build_prefix_tree, tempo_advantages
from tempo_trl.credit.prefix_baseline import tree_baselines
from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance

from .groups import (
    as_tensors,
    common,
    groups,
    mean_of_others,
    padded,
    predicted_by_definition,
    prefix_baseline_advantages,
    prefix_baselines,
    std,
)

EXACT = {"rtol": 0, "atol": 1e-10}
FINITE = st.sampled_from([0.0, 1.0, 0.25, -2.0])


def covariance(*levels: float, variance: float = 1.0) -> PrefixCovariance:
    """C(l) = levels[l], as an estimator that has seen just that."""
    fitted, lengths = PrefixCovariance(), np.arange(len(levels))
    ones = np.ones(len(levels))
    fitted.update([PairStatistics(lengths, np.array([levels, ones, ones]), variance, 1)])
    return fitted


NOTHING, RISING = covariance(), covariance(0.0, 0.1, 0.1, 0.4, 0.7, 2.0)
COVARIANCES = st.sampled_from([NOTHING, RISING])
ANY = pytest.mark.parametrize("learned", [NOTHING, RISING])


def baselines_by_definition(rows, rewards, num_generations, learned, branches=None) -> list[list[float]]:
    """b(i, t) token by token, the walk from the root redone for each; the own reward (0 for NaN) without others."""
    shared = np.array([[common(a, b) for b in rows] for a in rows])
    result = []
    for i, row in enumerate(rows):
        start = i // num_generations * num_generations
        group = [j for j in range(start, start + num_generations) if not math.isnan(rewards[j])]
        baselines = []
        for t in range(len(row)):
            others = [j for j in group if (j != i if branches is None else branches[i][t] not in branches[j])]
            votes = np.array([rewards[j] for j in others])
            if not others:
                baselines.append(0.0 if math.isnan(rewards[i]) else rewards[i])
            else:
                agreement = np.minimum(shared[i, others], t)
                baselines.append(predicted_by_definition(shared[np.ix_(others, others)], agreement, votes, learned))
        result.append(baselines)
    return result


def in_double(rows, rewards, num_generations, learned, branches=None) -> np.ndarray:
    ids, lengths, _ = as_tensors(rows, rewards)
    tree = build_prefix_tree(ids.numpy(), lengths.numpy(), num_generations)
    branches = None if branches is None else right_padded(branches, ids.shape[1])
    return tree_baselines(tree, torch.tensor(rewards, dtype=torch.float64), ids.shape[1], learned, branches)


def right_padded(segments: list[list[int]], width: int) -> torch.Tensor:
    rows = [[*row, *[-1] * (width - len(row))] for row in segments]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), width)


def by_definition(rows, *case) -> np.ndarray:
    width = max(map(len, rows))
    baselines = [row + [0.0] * (width - len(row)) for row in baselines_by_definition(rows, *case)]
    return np.array(baselines).reshape(len(rows), width)


@settings(max_examples=300)
@given(groups(), COVARIANCES)
def test_baselines_are_those_of_the_definition(case, learned):
    rows, rewards, num_generations = case
    computed = in_double(rows, rewards, num_generations, learned)
    np.testing.assert_allclose(computed, by_definition(rows, rewards, num_generations, learned), **EXACT)


# Two trees of one prompt each, as (rows, the segment of each token): a stem of two that parts after two tokens, one
# branch of which parts again; samples that repeat another's tokens; segments of one token; an early end.
GROWN = [
    ([[0, 1, 2], [0, 1, 3], [0, 2, 2], [1, 1, 1]], [[0, 0, 1], [0, 0, 2], [3, 3, 4], [5, 5, 6]]),
    ([[0, 1, 2], [0, 1, 2], [0, 1], [0, 1, 2]], [[7, 8, 9], [7, 8, 10], [7, 11], [12, 13, 13]]),
]
GROWN_ROWS, SEGMENTS = [[*first, *second] for first, second in zip(*GROWN, strict=True)]


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0.0, 1.0, 0.25, math.nan]), min_size=8, max_size=8), COVARIANCES)
def test_on_grown_trees_the_whole_branch_is_left_out(rewards, learned):
    computed = in_double(GROWN_ROWS, rewards, 4, learned, SEGMENTS)
    expected = by_definition(GROWN_ROWS, rewards, 4, learned, SEGMENTS)
    np.testing.assert_allclose(computed, expected, **EXACT)


@given(groups(min_size=2, rewards=FINITE))
def test_prefixes_that_tell_nothing_are_rloo(case):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    means = mean_of_others(reward_tensor, size).tolist()
    expected = padded([[mean] * len(row) for mean, row in zip(means, rows, strict=True)], ids.shape[1])
    assert torch.equal(prefix_baselines(ids, lengths, reward_tensor, size, NOTHING), expected)
    unscaled = prefix_baseline_advantages(ids, lengths, reward_tensor, size, NOTHING, "none")
    grpo = tempo_advantages(ids, lengths, reward_tensor, size, scale_rewards="none", td_coef=0.0)
    torch.testing.assert_close(unscaled, grpo * size / (size - 1))


@given(groups(), COVARIANCES, st.integers(0, 9), st.integers(0, 80))
def test_padding_is_never_read(case, learned, pad, extra):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    wider = torch.cat([ids, torch.full((len(rows), extra), pad)], dim=1)
    past = torch.arange(wider.shape[1]) >= lengths[:, None]
    wider[past] = pad
    segments = torch.arange(len(rows))[:, None].expand_as(wider).masked_fill(past, -1)
    expected = prefix_baselines(ids, lengths, reward_tensor, size, learned)
    computed = prefix_baselines(wider, lengths, reward_tensor, size, learned, segments)
    assert torch.equal(computed[:, : ids.shape[1]], expected)
    assert computed[past].count_nonzero() == 0
    advantages = prefix_baseline_advantages(wider, lengths, reward_tensor, size, learned)
    assert advantages[past].count_nonzero() == 0


@given(groups(), COVARIANCES, st.sampled_from(["group", "batch", "none"]))
def test_advantages_are_the_scaled_rewards_less_their_baselines(case, learned, scale_rewards):
    rows, rewards, size = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    advantages = prefix_baseline_advantages(ids, lengths, reward_tensor, size, learned, scale_rewards)
    baselines = prefix_baselines(ids, lengths, reward_tensor, size, learned)
    batch = [r for r in rewards if not math.isnan(r)]
    for i, row in enumerate(rows):
        votes = [r for r in rewards[i // size * size : (i // size + 1) * size] if not math.isnan(r)]
        if math.isnan(rewards[i]) or len(set(votes)) < 2:
            assert advantages[i].count_nonzero() == 0
            continue
        scale = {"group": std(votes) + 1e-4, "batch": std(batch) + 1e-4, "none": 1.0}[scale_rewards]
        expected = (reward_tensor[i] - baselines[i, : len(row)]) / scale
        torch.testing.assert_close(advantages[i, : len(row)], expected, rtol=1e-5, atol=1e-5)


@ANY
def test_where_nobody_else_was_grown_the_tokens_are_not_trained(learned):
    ids, lengths, rewards = as_tensors([[0, 1, 2], [0, 1, 3], [4, 5]], [1.0, 0.0, math.nan])
    stem = torch.tensor([[0, 0, 1], [0, 0, 2], [3, 3, -1]])
    baselines = prefix_baselines(ids, lengths, rewards, 3, learned, stem)
    assert baselines[:, 0].tolist() == [1.0, 0.0, 0.5]
    advantages = prefix_baseline_advantages(ids, lengths, rewards, 3, learned, "none", stem)
    assert advantages.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0]]


@ANY
def test_duplicates_of_long_completions_are_solved_without_loss(learned):
    ids = torch.zeros(64, 300, dtype=torch.long)
    baselines = prefix_baselines(ids, torch.full((64,), 300), torch.arange(64.0), 64, learned)
    means = (64 * 63 / 2 - torch.arange(64.0)) / 63  # all alike: nobody's reward says more than another's
    torch.testing.assert_close(baselines, means[:, None].expand(64, 300))


# Unbiasedness, on a policy over two tokens whose every state has a logit of its own. A completion has `DEPTH` tokens,
# or ends with a 1 after its first token: completions of different lengths. All rewards differ.
DEPTH = 3
STATES = [state for depth in range(DEPTH) for state in product((0, 1), repeat=depth)]
ENDS = [(1,), *(end for end in product((0, 1), repeat=DEPTH) if end[0] == 0)]
PROBABILITY = dict(zip(STATES, np.random.default_rng(1).uniform(0.2, 0.8, len(STATES)), strict=True))
REWARD = dict(zip([*product((0, 1), repeat=DEPTH), (1,)], np.random.default_rng(2).normal(size=9), strict=True))


def probability(tokens: tuple, start: int = 0) -> float:
    """Of the tokens from column `start` on."""
    chances = [PROBABILITY[tokens[:t]] for t in range(start, len(tokens))]
    return math.prod(p if token else 1 - p for p, token in zip(chances, tokens[start:], strict=True))


def score(tokens: tuple, t: int) -> float:
    """Derivative of the log-probability of token t by its state's logit."""
    return tokens[t] - PROBABILITY[tokens[:t]]


def true_gradient(ends: list[tuple]) -> np.ndarray:
    gradient = dict.fromkeys(STATES, 0.0)
    for end in ends:
        for t in range(len(end)):
            gradient[end[:t]] += probability(end) * REWARD[end] * score(end, t)
    return np.array(list(gradient.values()))


def expected_gradient(samples: list[list[tuple]], chances: list[float], learned, segments=None) -> np.ndarray:
    """Of sum over rows and tokens of (r - b) score / G, over all groups that may be sampled."""
    rows, size = [list(row) for group in samples for row in group], len(samples[0])
    rewards = [REWARD[tuple(row)] for row in rows]
    ids, lengths, _ = as_tensors(rows, rewards)
    tree = build_prefix_tree(ids.numpy(), lengths.numpy(), size)
    branches = None if segments is None else torch.tensor(segments * len(samples))
    baselines = tree_baselines(tree, torch.tensor(rewards, dtype=torch.float64), ids.shape[1], learned, branches)
    gradient, index = np.zeros(len(STATES)), {state: k for k, state in enumerate(STATES)}
    for i, row in enumerate(map(tuple, rows)):
        for t in range(len(row)):
            gradient[index[row[:t]]] += chances[i // size] * (rewards[i] - baselines[i, t]) * score(row, t) / size
    return gradient


@ANY
@pytest.mark.parametrize("size", [2, 3])
def test_the_expected_gradient_over_all_groups_is_the_true_one(size, learned):
    samples = [list(group) for group in product(ENDS, repeat=size)]
    chances = [math.prod(map(probability, group)) for group in samples]
    assert math.isclose(sum(chances), 1.0)
    np.testing.assert_allclose(expected_gradient(samples, chances, learned), true_gradient(ENDS), **EXACT)


@cache
def all_trees() -> tuple[list[list[tuple]], list[float], list[list[int]]]:
    """All trees of two first tokens, each continued twice: (groups of four rows, their chances, segments)."""
    tails = list(product((0, 1), repeat=DEPTH - 1))
    samples, chances = [], []
    for heads in product([(0,), (1,)], repeat=2):
        for ends in product(tails, repeat=4):
            rows = [heads[k // 2] + end for k, end in enumerate(ends)]
            samples.append(rows)
            chances.append(math.prod(map(probability, heads)) * math.prod(probability(row, 1) for row in rows))
    return samples, chances, [[0, 1, 1], [0, 2, 2], [3, 4, 4], [3, 5, 5]]


@ANY
def test_on_grown_trees_leaving_the_branch_out_is_unbiased_and_leaving_one_out_is_not(learned):
    samples, chances, segments = all_trees()
    assert math.isclose(sum(chances), 1.0)
    true = true_gradient(list(product((0, 1), repeat=DEPTH)))
    np.testing.assert_allclose(expected_gradient(samples, chances, learned, segments), true, **EXACT)
    assert np.abs(expected_gradient(samples, chances, learned) - true).max() > 1e-3


@ANY
def test_groups_whose_branches_have_equal_ids_do_not_see_each_other(learned):
    size = len(GROWN_ROWS)
    rewards = np.random.default_rng(0).normal(size=(2, size)).tolist()
    together = in_double(GROWN_ROWS * 2, rewards[0] + rewards[1], size, learned, SEGMENTS * 2)
    for number in range(2):
        alone = in_double(GROWN_ROWS, rewards[number], size, learned, SEGMENTS)
        np.testing.assert_allclose(together[number * size : (number + 1) * size], alone)
