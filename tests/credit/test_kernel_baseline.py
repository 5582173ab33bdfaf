"""The kernel baseline: the definition in loops, its reductions, and unbiasedness by exact expectation."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit.kernel_baseline import Similarities, kernel_baseline_tokens, predict
from tempo_trl.credit.kernel_covariance import POWERS, KernelCovariance
from tempo_trl.credit.prefix_baseline import baseline_tokens, tree_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.similarity import Sketch, prefix_similarities

from .groups import as_tensors, groups
from .test_prefix_baseline import (
    ENDS,
    EXACT,
    GROWN_ROWS,
    REWARD,
    SEGMENTS,
    STATES,
    all_trees,
    common,
    padded,
    probability,
    score,
    true_gradient,
)

SKETCH = Sketch(1, (1, 2), 64)
DEPTH = 3


def case_of(rows, rewards, size):
    """(tree, rewards in float64, width, similarities) of a case of [`groups`]."""
    ids, lengths, _ = as_tensors(rows, rewards)
    similar = prefix_similarities(ids, lengths, size, SKETCH).numpy()
    similarities = Similarities(SKETCH.depths(ids.shape[1]), similar)
    return prefix_tree(ids, lengths, size), torch.tensor(rewards, dtype=torch.float64), ids.shape[1], similarities


def learned() -> KernelCovariance:
    """What completions teach whose reward is a 1 in second place, as far as similar ones agree."""
    covariance, rng = KernelCovariance(), np.random.default_rng(0)
    for _ in range(3):
        rows = [rng.integers(0, 2, rng.integers(2, 7)).tolist() for _ in range(80)]
        rewards = [float(row[1] + 0.3 * rng.random() + 0.3 * sum(row) / len(row)) for row in rows]
        covariance.update(kernel_baseline_tokens(*case_of(rows, rewards, 8), covariance)[1])
    return covariance


LEARNED, NOTHING = learned(), KernelCovariance()
COVARIANCES = st.sampled_from([NOTHING, LEARNED])
EITHER = pytest.mark.parametrize("covariance", [NOTHING, LEARNED])


def computed_baselines(rows, rewards, size, covariance, segments=None) -> np.ndarray:
    tree, rewards, width, similarities = case_of(rows, rewards, size)
    branches = None if segments is None else torch.tensor(padded_segments(segments, width))
    return predict(tree, rewards.numpy(), width, similarities, covariance, branches).baselines(covariance)


def padded_segments(segments, width):
    return [row + [-1] * (width - len(row)) for row in segments]


def mean_by(matrix: np.ndarray, rewards: np.ndarray) -> tuple[float, np.ndarray]:
    """The generalized mean of the rewards, and the inverse of their covariance."""
    inverse, one = np.linalg.inv(matrix), np.ones(len(rewards))
    return one @ inverse @ rewards / (one @ inverse @ one), inverse


def by_definition(rows, rewards, size, covariance, segments=None) -> np.ndarray:
    """b(i, t) token by token, from the definition of the predictor."""
    depths = SKETCH.depths(max(map(len, rows)))
    similar = case_of(rows, rewards, size)[3].values.astype(float)
    result = []
    for i, row in enumerate(rows):
        first = i // size * size
        own = []
        for t in range(len(row)):
            others = [
                j
                for j in range(first, first + size)
                if not math.isnan(rewards[j]) and (j != i if segments is None else segments[i][t] not in segments[j])
            ]
            if not others:
                own.append(0.0 if math.isnan(rewards[i]) else rewards[i])
                continue
            s = similar[i // size][:, [j - first for j in others]]
            shared = np.array([[common(rows[a], rows[b]) for b in others] for a in others])
            alone = covariance.correlation(shared)
            matrix = covariance.kernel(shared, s[[j - first for j in others], :, -1])
            np.fill_diagonal(alone, 1.0)
            np.fill_diagonal(matrix, 1.0)
            factors, reached = covariance.factors(np.array(t)), max(d for d in range(len(depths)) if depths[d] <= t)
            later = covariance.factors(depths[reached])
            equal = covariance.correlation(np.minimum([common(row, rows[j]) for j in others], t))
            like = sum(f * s[i - first, :, reached] ** p for f, p in zip(later[2:], POWERS, strict=True))
            r = np.array([rewards[j] for j in others])
            mean, inverse = mean_by(alone, r)
            moved, full = mean_by(matrix, r)
            parts = moved - mean, equal @ inverse @ (r - mean), like @ full @ (r - moved)
            own.append(mean + factors[0] * parts[0] + factors[1] * parts[1] + parts[2])
        result.append(own)
    return np.array(padded(result, max(map(len, rows))))


def test_the_covariance_of_these_tests_has_learned():
    assert LEARNED.weights.sum() > 0.1
    assert LEARNED.correlation(np.arange(8)).max() > 0.1
    assert np.ptp(LEARNED.factors(np.arange(8)), axis=0).max() > 0.05


@settings(max_examples=100)
@given(groups(), COVARIANCES)
def test_baselines_are_those_of_the_definition(case, covariance):
    np.testing.assert_allclose(computed_baselines(*case, covariance), by_definition(*case, covariance), atol=1e-6)


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0.0, 1.0, 0.25, math.nan]), min_size=8, max_size=8), COVARIANCES)
def test_on_grown_trees_the_whole_branch_is_left_out(rewards, covariance):
    case = GROWN_ROWS, rewards, 4, covariance, SEGMENTS
    np.testing.assert_allclose(computed_baselines(*case), by_definition(*case), atol=1e-6)


@given(groups())
def test_before_anything_was_learned_it_is_rloo(case):
    tree, rewards, width, _ = case_of(*case)
    np.testing.assert_allclose(
        computed_baselines(*case, NOTHING), tree_baselines(tree, rewards, width, math.inf), atol=1e-9
    )


@settings(max_examples=50)
@given(groups(min_size=2), groups())
def test_without_similarity_it_is_the_adaptive_prefix_baseline(taught, asked):
    prefixes, kernel = PrefixCovariance(), KernelCovariance()
    tree, rewards, width, similarities = case_of(*taught)
    none = Similarities(similarities.depths, np.zeros_like(similarities.values))
    prefixes.update(pair_statistics(tree, rewards))
    learned = kernel_baseline_tokens(tree, rewards, width, none, kernel)[1]
    learned.state_gram[:], learned.state_moments[:] = 0, 0  # the factors stay at their prior: 1 for shared tokens
    kernel.update(learned)
    tree, rewards, width, similarities = case_of(*asked)
    computed, _ = kernel_baseline_tokens(tree, rewards, width, similarities, kernel)
    np.testing.assert_allclose(computed, baseline_tokens(tree, rewards, width, prefixes), atol=1e-6)


@given(groups(), COVARIANCES, st.sampled_from([0.0, 5.0]), st.data())
def test_no_baseline_looks_at_its_own_reward(case, covariance, reward, data):
    rows, rewards, size = case
    i = data.draw(st.integers(0, len(rows) - 1))
    start = i // size * size
    if all(math.isnan(r) for j, r in enumerate(rewards) if start <= j < start + size and j != i):
        return
    before = computed_baselines(*case, covariance)[i]
    rewards = [*rewards[:i], reward, *rewards[i + 1 :]]
    np.testing.assert_array_equal(computed_baselines(rows, rewards, size, covariance)[i], before)


@given(groups(), COVARIANCES, st.sampled_from([2.0, 0.5]), st.sampled_from([0.0, 10.0]))
def test_an_affine_map_of_the_rewards_maps_the_baselines_alike(case, covariance, factor, shift):
    rows, rewards, size = case
    mapped = computed_baselines(rows, [factor * r + shift for r in rewards], size, covariance)
    inside = np.arange(mapped.shape[1]) < np.array([[len(row)] for row in rows])
    scorable = ~np.isnan(rewards)[:, None]
    expected = factor * computed_baselines(*case, covariance) + shift
    np.testing.assert_allclose(mapped[inside & scorable], expected[inside & scorable], atol=1e-8)


def expected_gradient(samples, chances, covariance, segments=None) -> np.ndarray:
    """Of sum over rows and tokens of (r - b) score / G, over all groups that may be sampled."""
    rows, size = [list(row) for group in samples for row in group], len(samples[0])
    rewards = [REWARD[tuple(row)] for row in rows]
    segments = None if segments is None else segments * len(samples)
    baselines = computed_baselines(rows, rewards, size, covariance, segments)
    gradient, index = np.zeros(len(STATES)), {state: k for k, state in enumerate(STATES)}
    for i, row in enumerate(map(tuple, rows)):
        for t in range(len(row)):
            gradient[index[row[:t]]] += chances[i // size] * (rewards[i] - baselines[i, t]) * score(row, t) / size
    return gradient


@EITHER
@pytest.mark.parametrize("size", [2, 3])
def test_the_expected_gradient_over_all_groups_is_the_true_one(size, covariance):
    samples = [list(group) for group in product(ENDS, repeat=size)]
    chances = [math.prod(map(probability, group)) for group in samples]
    np.testing.assert_allclose(expected_gradient(samples, chances, covariance), true_gradient(ENDS), **EXACT)


@EITHER
def test_on_grown_trees_leaving_the_branch_out_is_unbiased_and_leaving_one_out_is_not(covariance):
    samples, chances, segments = all_trees()
    true = true_gradient(list(product((0, 1), repeat=DEPTH)))
    np.testing.assert_allclose(expected_gradient(samples, chances, covariance, segments), true, **EXACT)
    assert np.abs(expected_gradient(samples, chances, covariance) - true).max() > 1e-3


@EITHER
def test_flat_groups_groups_of_one_and_unscorable_completions_get_exactly_zero(covariance):
    rows = [[0, 1], [1, 0], [1, 1], [0, 0]]
    for rewards, size in (([0.1] * 4, 4), ([1.0, 0.0, 1.0, 0.0], 1), ([math.nan, 1.0, math.nan, 1.0], 2)):
        advantages, statistics = kernel_baseline_tokens(*case_of(rows, rewards, size), covariance)
        assert not advantages.any()
        assert statistics.groups == 0
        assert not statistics.state_gram.any()


def test_it_learns_from_the_rows_that_it_is_told():
    rows, rewards = [[0, 1, 0], [0, 1, 1], [1, 0], [1, 1]] * 2, [1.0, 0.0, 0.5, 1.0] * 2
    first = torch.arange(8) < 4
    told = kernel_baseline_tokens(*case_of(rows, rewards, 4), LEARNED, learn_from=first)[1]
    alone = kernel_baseline_tokens(*case_of(rows[:4], rewards[:4], 4), LEARNED)[1]
    assert told.groups == alone.groups == 1
    np.testing.assert_allclose(told.state_gram, alone.state_gram, atol=1e-9)
    np.testing.assert_allclose(told.state_moments, alone.state_moments, atol=1e-9)
    np.testing.assert_allclose(told.pairs, alone.pairs, atol=1e-6)


def test_where_wording_varies_similar_completions_predict_what_prefixes_cannot():
    """The first token is noise and parts all completions; the reward is the later word that most of them share."""
    rng, covariance, prefixes = np.random.default_rng(0), KernelCovariance(), PrefixCovariance()
    errors = []
    for _ in range(30):
        kind = rng.integers(0, 2, 64)
        rows = [
            [100 + i % 8, *rng.permutation([10 * k + j for j in range(1, 6)]).tolist()] for i, k in enumerate(kind)
        ]
        rewards = (kind + (rng.random(64) < 0.1)) % 2
        tree, rewards, width, similarities = case_of(rows, rewards.astype(float).tolist(), 8)
        advantages, statistics = kernel_baseline_tokens(tree, rewards, width, similarities, covariance)
        errors.append(
            [a[:, -1].square().mean().item() for a in (advantages, baseline_tokens(tree, rewards, width, prefixes))]
        )
        covariance.update(statistics)
        prefixes.update(pair_statistics(tree, rewards))
    kernel, prefix = np.mean(errors[8:], axis=0)
    assert kernel < 0.75 * prefix
