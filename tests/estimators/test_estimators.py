"""Expectations over all groups that there are, reductions of one method to another, and what the trees' credits do."""

import numpy as np
import pytest

from benchmarks.estimators.estimators import Credit, adaptive, prefix_baseline, tempo, treerpo
from benchmarks.estimators.metrics import gradients
from benchmarks.estimators.rollouts import Entropy, Fixed, Independent
from benchmarks.estimators.task import Task

from .trees import HAND, all_groups, random_tree

TREES = [HAND, random_tree(depth=2, vocabulary=3)]
TASK = Task((1, 3), depth=6, importance=0.8)


def expected(tree, size: int, credit) -> np.ndarray:
    """Expectation of an estimate over every group of `size`."""
    sample, probability = all_groups(tree, size)
    assert probability.sum() == pytest.approx(1)
    return np.tensordot(probability, gradients(tree, sample, credit(sample)), axes=1)


def drawn(rollout, batches: int = 4, budget: int = 600):
    return rollout.sample(TASK.tree(), budget, batches, np.random.default_rng(0))


@pytest.mark.parametrize("tree", TREES)
def test_grpo_expects_half_the_gradient_from_groups_of_two(tree):
    # r_1 - mean = (r_1 - r_2) / 2, and r_2 is independent of the first completion: (G - 1) / G of the gradient.
    assert expected(tree, 2, tempo(0.0)) == pytest.approx(tree.gradient / 2, abs=1e-7)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shrinkage", [0.0, 1.0, 5.0, float("inf")])
def test_a_prefix_baseline_expects_the_gradient_itself_and_so_does_rloo(tree, shrinkage):
    assert expected(tree, 2, prefix_baseline(shrinkage)) == pytest.approx(tree.gradient, abs=1e-7)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("coefficient", [1.0, 3.0])
def test_tempo_expects_more_of_states_that_are_reached_more_often(tree, coefficient):
    # Groups of two. The TD error of a token is r_1 - mean where the other completion is in the same state s and takes
    # another token, else 0. That the other is in s too has probability reach(s); if it takes the same token there, its
    # expected reward is the same and r_1 - mean adds nothing. So the part of s counts (1 + c reach(s)) / 2.
    rows = tree.tabular_gradient * (1 + coefficient * tree.reach[:, None]) / 2
    pooled = np.stack([rows[tree.level(length)].sum(axis=0) for length in range(tree.depth)])
    assert expected(tree, 2, tempo(coefficient)) == pytest.approx(pooled, abs=1e-7)


def same(one: Credit, other: Credit, factor: float = 1.0) -> None:
    np.testing.assert_allclose(one.coefficients(), factor * other.coefficients(), rtol=1e-5, atol=1e-6)


def test_methods_reduce_to_one_another():
    sample = drawn(Independent(5))
    rloo = prefix_baseline(float("inf"))(sample)
    same(rloo, tempo(0.0)(sample), factor=5 / 4)
    same(prefix_baseline(1e9)(sample), rloo)
    assert np.abs(tempo(1.0)(sample).coefficients() - tempo(0.0)(sample).coefficients()).max() > 0.1


def test_trees_of_one_level_are_independent_completions():
    sample = drawn(Fixed(4, 1))
    same(treerpo()(sample), tempo(0.0)(sample))
    same(treerpo("leaves", "per_leaf")(sample), tempo(0.0)(sample))


def test_the_adaptive_baseline_is_rloo_on_its_first_batch_and_looks_at_earlier_batches_only():
    sample = drawn(Independent(8), batches=3, budget=2000)
    credit, rloo = adaptive()(sample).coefficients(), prefix_baseline(float("inf"))(sample).coefficients()
    first = slice(0, sample.bounds[1])
    np.testing.assert_allclose(credit[first], rloo[first], atol=1e-6)
    assert np.abs(credit - rloo)[sample.bounds[1] :].max() > 0.01
    sample.rewards[sample.bounds[2] :] = 1 - sample.rewards[sample.bounds[2] :]
    changed = adaptive()(sample).coefficients()
    np.testing.assert_array_equal(changed[: sample.bounds[2]], credit[: sample.bounds[2]])


@pytest.mark.parametrize("rollout", [Fixed(2, 3), Entropy(8)], ids=str)
def test_on_a_grown_tree_the_weighted_advantages_of_grpo_add_up_to_nothing(rollout):
    sample = drawn(rollout)
    credit = tempo(0.0)(sample)
    groups = credit.coefficients().reshape(-1, 8, TASK.depth)
    np.testing.assert_allclose(groups.sum(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(credit.weights.view(-1, 8).sum(dim=1), 8)


def test_a_shared_token_of_treerpo_is_in_the_loss_once_and_its_siblings_add_up_to_nothing():
    sample = drawn(Fixed(2, 3))
    credit = treerpo()(sample)
    # 2 + 4 + 8 segments of two tokens each
    assert credit.in_loss.view(-1, 8, 6).sum(dim=(1, 2)).unique().tolist() == [28]
    assert credit.in_loss.view(-1, 8, 6).sum(dim=1)[0].tolist() == [2, 2, 4, 4, 8, 8]
    np.testing.assert_allclose(credit.coefficients().reshape(-1, 8, 6).sum(axis=1), 0, atol=1e-6)


def test_forced_tokens_are_kept_or_reweighted_or_left_out():
    sample = drawn(Entropy(8))
    kept, reweighted, masked = (tempo(1.0, treatment)(sample) for treatment in ("keep", "reweight", "mask"))
    forced = ~masked.in_loss
    starts = sum(segment.forced for grown in sample.trees for segment in grown.segments)
    assert kept.in_loss.all() and forced.any() and forced.sum() >= starts
    np.testing.assert_array_equal(reweighted.coefficients()[~forced], kept.coefficients()[~forced])
    assert (np.abs(reweighted.coefficients()[forced]) <= np.abs(kept.coefficients()[forced])).all()
    assert np.abs(kept.coefficients()[forced]).sum() > 1.2 * np.abs(reweighted.coefficients()[forced]).sum()
