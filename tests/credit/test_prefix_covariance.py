"""The covariance of rewards over shared prefixes: its definition in loops, and what adds up."""

import json
import math
from functools import reduce
from itertools import combinations
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit import build_prefix_tree
from tempo_trl.credit.prefix_covariance import (
    PairStatistics,
    PrefixCovariance,
    pair_statistics,
)

from .groups import as_tensors, common, groups, std


def statistics_of(rows, rewards, num_generations) -> PairStatistics:
    ids, lengths, _ = as_tensors(rows, rewards)
    tree = build_prefix_tree(ids.numpy(), lengths.numpy(), num_generations)
    return pair_statistics(tree, torch.tensor(rewards, dtype=torch.float64))


def fitted(*batches, **options) -> PrefixCovariance:
    covariance = PrefixCovariance(**options)
    for batch in batches:
        covariance.update([statistics_of(*batch)])
    return covariance


def scorable_groups(rows, rewards, size):
    """(rows, rewards) of the scorable completions of each group that is not flat."""
    for start in range(0, len(rows), size):
        kept = [j for j in range(start, start + size) if not math.isnan(rewards[j])]
        if len({rewards[j] for j in kept}) > 1:
            yield [rows[j] for j in kept], [rewards[j] for j in kept]


def products_by_definition(rows, rewards, size) -> dict[int, list[float]]:
    """The centred products of all pairs of completions, by the tokens that they share."""
    products = {}
    for group, scores in scorable_groups(rows, rewards, size):
        n, mean = len(group), sum(scores) / len(group)
        for j, k in combinations(range(n), 2):
            product = (scores[j] - mean) * (scores[k] - mean) * n / (n - 1) + std(scores) ** 2 / n
            products.setdefault(common(group[j], group[k]), []).append(product)
    return products


def pooled_adjacent_violators(values: list[float], weights: list[int]) -> list[float]:
    blocks = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m, i), (b, n, j) = blocks.pop(), blocks.pop()
            blocks.append(((a * m + b * n) / (m + n), m + n, i + j))
    return [value for value, _, count in blocks for _ in range(count)]


@settings(max_examples=200)
@given(groups())
def test_statistics_are_those_of_the_definition(case):
    products, statistics = products_by_definition(*case), statistics_of(*case)
    assert statistics.shared.tolist() == sorted(products)
    sums, pairs, closest_pairs = statistics.sums
    assert pairs.tolist() == [len(products[shared]) for shared in sorted(products)]
    np.testing.assert_allclose(sums, [sum(products[k]) for k in sorted(products)], atol=1e-9)
    spread = list(scorable_groups(*case))
    assert statistics.groups == len(spread)
    assert statistics.variances == pytest.approx(sum(std(scores) ** 2 for _, scores in spread))
    closest = [
        max(common(row, other) for k, other in enumerate(group) if k != j)
        for group, _ in spread
        for j, row in enumerate(group)
    ]
    assert closest_pairs.tolist() == [closest.count(shared) for shared in sorted(products)]


@settings(max_examples=200)
@given(groups())
def test_the_curve_is_the_isotonic_mean_shifted_to_zero_and_capped(case):
    products, covariance = products_by_definition(*case), fitted(case)
    if not products:
        assert covariance(np.arange(5)).tolist() == [0.0] * 5
        return
    lengths = sorted(products)
    means = [sum(products[shared]) / len(products[shared]) for shared in lengths]
    rising = pooled_adjacent_violators(means, [len(products[shared]) for shared in lengths])
    variances = [std(scores) ** 2 for _, scores in scorable_groups(*case)]
    v = sum(variances) / len(variances)
    assert covariance.variance == pytest.approx(v)
    of_pairs = [level for level, n in zip(rising, lengths, strict=True) for _ in products[n]]
    zero = of_pairs[math.ceil(len(of_pairs) / 10) - 1]  # the last pair of the tenth that shares the fewest tokens
    expected = [min(max(level - zero, 0.0), 0.98 * v) for level in rising]
    np.testing.assert_allclose(covariance(np.array(lengths)), expected, atol=1e-9)
    np.testing.assert_allclose(covariance.correlation(np.array(lengths)), np.array(expected) / v, atol=1e-9)


def test_between_the_lengths_seen_the_curve_keeps_the_value_of_the_shorter():
    covariance = PrefixCovariance()
    covariance.update([PairStatistics(np.array([2, 5, 9]), np.array([[0.1, 0.3, 0.2], [1] * 3, [2] * 3]), 2.0, 2)])
    # 0.3 and 0.2 are out of order: both 0.25. Shifted by 0.1.
    np.testing.assert_allclose(covariance(np.array([0, 1, 2, 4, 5, 8, 9, 99])), [0, 0, 0, 0, 0.15, 0.15, 0.15, 0.15])
    assert covariance.variance == 1.0
    assert covariance.explained == pytest.approx((0 + 0.15 + 0.15) / 3)


@given(groups(), st.data())
def test_statistics_add_up_over_the_parts_of_a_batch(case, data):
    rows, rewards, size = case
    cut = size * data.draw(st.integers(0, len(rows) // size))
    parts = [(rows[:cut], rewards[:cut], size), (rows[cut:], rewards[cut:], size)]
    total = reduce(add, [statistics_of(*part) for part in parts if part[0]], PairStatistics())
    whole = statistics_of(*case)
    np.testing.assert_array_equal(total.shared, whole.shared)
    np.testing.assert_allclose(total.sums, whole.sums, atol=1e-9)
    assert total.groups == whole.groups
    assert total.variances == pytest.approx(whole.variances)


@pytest.mark.parametrize(("groups_like_it", "explained"), [(1, False), (12, True)])
def test_one_completion_that_begins_unlike_all_others_explains_nothing_and_many_do(groups_like_it, explained):
    """Twelve groups of eight that share a token, with chance rewards; in some one begins otherwise, and is wrong."""
    rng, rows, rewards = np.random.default_rng(0), [], []
    for group in range(12):
        rows += [[0, i] for i in range(8)]
        rewards += rng.normal(size=8).tolist()
        if group < groups_like_it:
            rows[-1], rewards[-1] = [1, 0], -10.0
    assert (fitted((rows, rewards, 8)).explained > 0.5) == explained


TELLING = ([[0, 1], [0, 2], [1, 1], [1, 2]], [1.0, 1.0, 0.0, 0.0], 4)
IDLE = ([[0, 1], [0, 2], [1, 1], [1, 2]], [1.0, 0.0, 1.0, 0.0], 4)
FLAT = (TELLING[0], [1.0] * 4, 4)


def test_only_the_last_batches_count():
    assert fitted(TELLING, TELLING, IDLE, batches=1)(np.array([1])) == 0.0
    assert fitted(TELLING, TELLING, IDLE, batches=3)(np.array([1])) > 0.0


@pytest.mark.parametrize("batches", [[], [FLAT], [TELLING, IDLE, FLAT]])
@pytest.mark.parametrize("carry", [lambda state: state, lambda state: json.loads(json.dumps(state))])
def test_a_loaded_state_goes_on_as_if_nothing_had_happened(carry, batches):
    ours, theirs = fitted(*batches, batches=3), fitted(IDLE, IDLE, batches=3)
    theirs.load_state_dict(carry(ours.state_dict()))
    for _ in range(4):
        assert theirs(np.arange(5)).tobytes() == ours(np.arange(5)).tobytes()
        assert (theirs.variance, theirs.explained) == (ours.variance, ours.explained)
        for covariance in (ours, theirs):
            covariance.update([statistics_of(*IDLE)])
