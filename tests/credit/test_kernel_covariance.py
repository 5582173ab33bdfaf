"""The kernel of equal and similar prefixes: its definition in loops, its reductions, and what it must recover."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit.kernel_baseline import Similarities, kernel_baseline_tokens
from tempo_trl.credit.kernel_covariance import (
    DEPTHS,
    FACTORS,
    POWERS,
    KernelCovariance,
    KernelStatistics,
    depth_range,
    kernel_statistics,
    non_negative,
)
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pairwise_lcp
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.similarity import Sketch, prefix_similarities

from .groups import as_tensors, groups
from .test_prefix_covariance import scorable_groups, statistics_of, std
from .test_theorems import common_prefix

SKETCH = Sketch(1, (1, 2), 64)
NO_STATES = np.zeros((DEPTHS, FACTORS, FACTORS)), np.zeros((DEPTHS, FACTORS))


def case_of(rows, rewards, size):
    """(tree, rewards, similarities) of a case of [`groups`]."""
    ids, lengths, _ = as_tensors(rows, rewards)
    similar = prefix_similarities(ids, lengths, size, SKETCH).numpy()
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return prefix_tree(ids, lengths, size), rewards, Similarities(SKETCH.depths(ids.shape[1]), similar)


def taught_by(rows, rewards, size) -> KernelStatistics:
    tree, rewards, similar = case_of(rows, rewards, size)
    return kernel_baseline_tokens(tree, rewards, similar_width(rows), similar, KernelCovariance())[1]


def similar_width(rows) -> int:
    return max(map(len, rows))


def fitted(*batches, **options) -> KernelCovariance:
    covariance = KernelCovariance(**options)
    for batch in batches:
        covariance.update(taught_by(*batch))
    return covariance


@settings(max_examples=100)
@given(groups())
def test_statistics_are_those_of_the_definition(case):
    rows, rewards, size = case
    tree, outcome, similar = case_of(*case)
    whole = similar.values[..., -1]
    computed = kernel_statistics(pairwise_lcp(tree), outcome, whole, *NO_STATES)
    by_length, gram, moments = {}, np.zeros((4, 4)), np.zeros(4)
    for start in range(0, len(rows), size):
        for kept, scores in scorable_groups(rows[start : start + size], rewards[start : start + size], size):
            places = [start + k for k in range(size) if not math.isnan(rewards[start + k])]
            n, mean = len(kept), sum(scores) / len(kept)
            for j, k in combinations(range(n), 2):
                product = (scores[j] - mean) * (scores[k] - mean) * n / (n - 1) + std(scores) ** 2 / n
                s = float(whole[start // size, places[j] - start, places[k] - start]) ** np.array(POWERS)
                shared = len(common_prefix(kept[j], kept[k]))
                by_length[shared] = by_length.get(shared, 0.0) + np.array([1.0, product, *s])
                gram += np.outer(s, s)
                moments += s * product
    assert computed.shared.tolist() == sorted(by_length)
    np.testing.assert_allclose(
        computed.pairs.reshape(-1), np.ravel([by_length[k] for k in sorted(by_length)]), atol=1e-6
    )
    np.testing.assert_allclose(computed.gram, gram, atol=1e-5)
    np.testing.assert_allclose(computed.moments, moments, atol=1e-5)


@given(groups(), st.data())
def test_statistics_add_up_over_the_groups_of_a_batch(case, data):
    rows, rewards, size = case
    cut = size * data.draw(st.integers(0, len(rows) // size))
    if not 0 < cut < len(rows):
        return
    whole, parts = taught_by(*case), [taught_by(rows[p], rewards[p], size) for p in (slice(cut), slice(cut, None))]
    both = KernelCovariance(), KernelCovariance()
    both[0].update(whole)
    both[1].update(parts[0] + parts[1])
    np.testing.assert_allclose(both[0].weights, both[1].weights, atol=1e-6)
    lengths = np.arange(8)
    np.testing.assert_allclose(both[0].correlation(lengths), both[1].correlation(lengths), atol=1e-6)
    np.testing.assert_allclose(both[0].factors(lengths), both[1].factors(lengths), atol=1e-5)


def test_before_the_first_batch_it_is_zero():
    covariance = KernelCovariance()
    assert not covariance.kernel(np.arange(5), np.linspace(0, 1, 5)).any()
    assert covariance.variance == 0
    with pytest.raises(ValueError, match="`batches` must be at least 1, got 0"):
        KernelCovariance(0)


@given(groups())
def test_without_any_similarity_the_steps_are_the_prefix_covariance(case):
    rows, rewards, size = case
    tree, outcome, similar = case_of(*case)
    none = np.zeros_like(similar.values[..., -1])
    covariance, prefixes = KernelCovariance(), PrefixCovariance()
    covariance.update(kernel_statistics(pairwise_lcp(tree), outcome, none, *NO_STATES))
    prefixes.update(statistics_of(rows, rewards, size))
    lengths = np.arange(-1, 8)
    assert not covariance.weights.any()
    np.testing.assert_allclose(covariance.correlation(lengths), prefixes.correlation(lengths), atol=1e-12)
    np.testing.assert_array_equal(covariance.factors(lengths)[:, 1], 1.0)


@settings(max_examples=50)
@given(groups(min_size=2), groups(min_size=2))
def test_the_kernel_of_any_group_is_positive_definite(taught, asked):
    covariance = fitted(taught)
    tree, _, similar = case_of(*asked)
    kernel = covariance.kernel(pairwise_lcp(tree), similar.values[..., -1])
    size = kernel.shape[1]
    kernel[:, np.arange(size), np.arange(size)] = 1.0
    assert kernel.max() <= 1.0 + 1e-9
    assert np.linalg.eigvalsh(kernel).min() > 0.01


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0, 1))
def test_any_mix_of_powers_and_steps_is_positive_semi_definite(seed, weights, share):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 3, rng.integers(1, 12)).tolist() for _ in range(6)]
    tree, _, similar = case_of(rows, [0.0] * 6, 6)
    shared, s = pairwise_lcp(tree)[0], similar.values[0, :, :, -1].astype(float)
    mix = sum(a * s**p for a, p in zip(weights, POWERS, strict=True))
    mix += sum(share * rng.random() * (shared >= step) for step in range(1, 12))
    assert np.linalg.eigvalsh(mix).min() > -1e-4


def test_the_fit_finds_the_weights_that_made_the_products():
    rng = np.random.default_rng(0)
    shared, s = rng.integers(0, 3, 20_000), rng.random(20_000)
    products = 0.1 + 0.2 * (shared >= 2) + 0.4 * s**2 + rng.normal(size=20_000) * 0.1
    powers, (lengths, index) = s[:, None] ** POWERS, np.unique(shared, return_inverse=True)
    pairs = np.zeros((3, 2 + len(POWERS)))
    np.add.at(pairs, index, np.column_stack([np.ones(20_000), products, powers]))
    statistics = KernelStatistics(lengths, pairs, powers.T @ powers, powers.T @ products, 100.0, 100, *NO_STATES)
    covariance = KernelCovariance()
    covariance.update(statistics)
    np.testing.assert_allclose(covariance.correlation(np.arange(3)), [0, 0, 0.2], atol=0.02)
    similar = np.linspace(0, 1, 11)
    np.testing.assert_allclose(covariance.kernel(np.zeros(11), similar), 0.4 * similar**2, atol=0.02)


def test_few_data_change_less_than_many():
    learned, empty = [], KernelStatistics.empty()
    for times in (1.0, 100.0):  # two pairs, one equal and one unlike, whose rewards agree and do not
        pairs, ones = np.array([[2.0, 1.0, 1.0, 1.0, 1.0, 1.0]]) * times, np.ones((4, 4)) * times
        states = empty.state_gram, empty.state_moments
        covariance = KernelCovariance()
        covariance.update(KernelStatistics(np.array([0]), pairs, ones, np.ones(4) * times, 1.0, 1, *states))
        learned.append(covariance.weights.sum())
    few, many = learned
    assert 0.1 < few < 0.5 * many
    assert many == pytest.approx(0.98)


def test_a_part_that_did_not_help_at_a_depth_fades_out_there():
    gram, moments = NO_STATES[0].copy(), NO_STATES[1].copy()
    helpful, harmful = depth_range(np.array([1, 100]))
    gram[[helpful, harmful], 1, 1] = 1000.0
    moments[helpful, 1], moments[harmful, 1] = 1500.0, -500.0
    empty = KernelStatistics.empty()
    covariance = KernelCovariance()
    covariance.update(KernelStatistics(empty.shared, empty.pairs, empty.gram, empty.moments, 1.0, 1, gram, moments))
    assert covariance.factors(np.array([1]))[0, 1] == pytest.approx(1.5, abs=0.01)
    assert covariance.factors(np.array([100]))[0, 1] == 0.0
    assert covariance.factors(np.array([10]))[0, 1] == 1.0  # nothing was seen there


@given(st.integers(0, 1000))
def test_non_negative_least_squares_from_sums_is_that_of_the_data(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    solution = non_negative(x.T @ x, x.T @ y)
    slope = x.T @ (x @ solution - y)
    assert solution.min() >= 0
    assert slope.min() > -1e-9  # the conditions of Karush, Kuhn and Tucker
    assert abs(slope @ solution) < 1e-9


@given(st.lists(groups(), min_size=1, max_size=3), st.integers(1, 2))
def test_a_loaded_state_goes_on_as_if_nothing_had_happened(batches, pooled):
    straight, (first, *rest) = fitted(*batches, batches=pooled), batches
    resumed = KernelCovariance(pooled)
    resumed.load_state_dict(fitted(first, batches=pooled).state_dict())
    for batch in rest:
        resumed.update(taught_by(*batch))
    for a, b in zip(straight.state_dict()["statistics"], resumed.state_dict()["statistics"], strict=True):
        assert all(torch.equal(torch.as_tensor(a[name]), torch.as_tensor(b[name])) for name in a)
    np.testing.assert_array_equal(straight.weights, resumed.weights)


def test_ranges_of_depth_double():
    assert depth_range(np.array([0, 1, 2, 3, 4, 8191, 8192, 2**40])).tolist() == [0, 0, 1, 1, 2, 12, 13, DEPTHS - 1]
