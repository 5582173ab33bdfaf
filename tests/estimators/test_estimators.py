"""Expectations over all groups that there are, reductions of one method to another, and what the trees' credits do."""

import numpy as np
import pytest
import torch

from benchmarks.estimators.estimators import (
    Credit,
    adaptive,
    grpo_lambda,
    ppo,
    prefix_baseline,
    rerolled_values,
    tempo,
    treerpo,
)
from benchmarks.estimators.metrics import gradients
from benchmarks.estimators.rollouts import Entropy, Fixed, Independent, Rerolled
from benchmarks.estimators.task import Task

from .trees import HAND, all_groups, random_tree

TREES = [HAND, random_tree(depth=2, vocabulary=3)]
TASK = Task((1, 3), depth=6, importance=0.8)


def expected(tree, size: int, credit) -> np.ndarray:
    """Expectation of an estimate over every group of `size`."""
    sample, probability = all_groups(tree, size)
    assert probability.sum() == pytest.approx(1)
    return np.tensordot(probability, gradients(tree, sample, credit(sample, tree)), axes=1)


def drawn(rollout, batches: int = 4, budget: int = 600):
    tree = TASK.tree()
    return rollout.sample(tree, budget, batches, np.random.default_rng(0)), tree


@pytest.mark.parametrize("tree", TREES)
def test_grpo_expects_half_the_gradient_from_groups_of_two(tree):
    # r_1 - mean = (r_1 - r_2) / 2, and r_2 is independent of the first completion: (G - 1) / G of the gradient.
    assert expected(tree, 2, tempo(0.0)) == pytest.approx(tree.gradient / 2, abs=1e-7)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shrinkage", [0.0, 1.0, 5.0, float("inf")])
def test_a_prefix_baseline_expects_the_gradient_itself_and_so_does_rloo(tree, shrinkage):
    assert expected(tree, 2, prefix_baseline(shrinkage)) == pytest.approx(tree.gradient, abs=1e-7)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_ppo_with_the_true_critic_expects_the_gradient(lam):
    tree = random_tree()
    assert expected(tree, 1, ppo(lam)) == pytest.approx(tree.gradient)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("coefficient", [1.0, 3.0])
def test_tempo_expects_more_of_states_that_are_reached_more_often(tree, coefficient):
    # Groups of two. The TD error of a token is r_1 - mean where the other completion is in the same state s and takes
    # another token, else 0. That the other is in s too has probability reach(s); if it takes the same token there, its
    # expected reward is the same and r_1 - mean adds nothing. So the part of s counts (1 + c reach(s)) / 2.
    rows = tree.tabular_gradient * (1 + coefficient * tree.reach[:, None]) / 2
    pooled = np.stack([rows[tree.level(length)].sum(axis=0) for length in range(tree.depth)])
    assert expected(tree, 2, tempo(coefficient)) == pytest.approx(pooled, abs=1e-7)


def test_epsilon_trace_is_plain_policy_gradient_with_later_advantages_added_to_earlier_tokens():
    sample, tree = drawn(Independent(4), batches=1)
    plain, decay = tempo(0.0)(sample, tree).advantages, 0.7
    for style in ("recent", "both"):

        def weight(t: int, lag: int, style=style) -> float:
            return decay**lag if style == "recent" else max(decay**lag, decay ** (t - lag))

        summed = torch.stack(
            [sum(weight(t, t - j) * plain[:, t] for t in range(j, tree.depth)) for j in range(tree.depth)], dim=1
        )
        traced = grpo_lambda(decay, style=style)(sample, tree).advantages
        torch.testing.assert_close(traced, summed, rtol=1e-5, atol=1e-6)


def test_epsilon_weight_counts_the_tokens_so_far_and_clamps():
    sample, tree = drawn(Independent(4), batches=1)
    plain = tempo(0.0)(sample, tree).advantages
    weighted = grpo_lambda(0.5, "weight", min_advantage=-0.1)(sample, tree).advantages
    sums = torch.tensor([sum(0.5**lag for lag in range(t + 1)) for t in range(tree.depth)])
    assert (plain < -0.1).any()
    torch.testing.assert_close(weighted, plain.clamp(min=-0.1) * sums)


def same(one: Credit, other: Credit, factor: float = 1.0) -> None:
    np.testing.assert_allclose(one.coefficients(), factor * other.coefficients(), rtol=1e-5, atol=1e-6)


def test_methods_reduce_to_one_another():
    sample, tree = drawn(Independent(5))
    rloo = prefix_baseline(float("inf"))(sample, tree)
    same(rloo, tempo(0.0)(sample, tree), factor=5 / 4)
    same(prefix_baseline(1e9)(sample, tree), rloo)
    same(grpo_lambda(0.0)(sample, tree), tempo(0.0)(sample, tree))
    assert np.abs(tempo(1.0)(sample, tree).coefficients() - tempo(0.0)(sample, tree).coefficients()).max() > 0.1


def test_trees_of_one_level_are_independent_completions():
    sample, tree = drawn(Fixed(4, 1))
    same(treerpo()(sample, tree), tempo(0.0)(sample, tree))
    same(treerpo("leaves", "per_leaf")(sample, tree), tempo(0.0)(sample, tree))


def test_ppo_over_the_values_of_re_rollouts_is_their_td_error():
    sample, tree = drawn(Rerolled(2), batches=2)
    values = torch.cat([sample.rerolled, sample.rewards[:, None]], dim=1)  # the last state's value is its reward
    np.testing.assert_allclose(rerolled_values(sample, tree).coefficients(), values.diff(dim=1).numpy())


def test_ppo_with_the_true_critic_and_lambda_0_knows_the_true_advantage_but_for_the_last_token():
    sample, tree = drawn(Independent(1))
    taken = sample.ids.numpy()
    true = tree.advantages[sample.nodes[:, :-1], taken]
    np.testing.assert_allclose(ppo(0.0)(sample, tree).coefficients()[:, :-1], true[:, :-1], atol=1e-12)


def test_the_adaptive_baseline_is_rloo_on_its_first_batch_and_looks_at_earlier_batches_only():
    sample, tree = drawn(Independent(8), batches=3, budget=2000)
    credit, rloo = adaptive()(sample, tree).coefficients(), prefix_baseline(float("inf"))(sample, tree).coefficients()
    first = slice(0, sample.bounds[1])
    np.testing.assert_allclose(credit[first], rloo[first], atol=1e-6)
    assert np.abs(credit - rloo)[sample.bounds[1] :].max() > 0.01
    sample.rewards[sample.bounds[2] :] = 1 - sample.rewards[sample.bounds[2] :]
    changed = adaptive()(sample, tree).coefficients()
    np.testing.assert_array_equal(changed[: sample.bounds[2]], credit[: sample.bounds[2]])


@pytest.mark.parametrize("rollout", [Fixed(2, 3), Entropy(8)], ids=str)
def test_on_a_grown_tree_the_weighted_advantages_of_grpo_add_up_to_nothing(rollout):
    sample, tree = drawn(rollout)
    credit = tempo(0.0)(sample, tree)
    groups = credit.coefficients().reshape(-1, 8, tree.depth)
    np.testing.assert_allclose(groups.sum(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(credit.weights.view(-1, 8).sum(dim=1), 8)


def test_a_shared_token_of_treerpo_is_in_the_loss_once_and_its_siblings_add_up_to_nothing():
    sample, tree = drawn(Fixed(2, 3))
    credit = treerpo()(sample, tree)
    # 2 + 4 + 8 segments of two tokens each
    assert credit.in_loss.view(-1, 8, 6).sum(dim=(1, 2)).unique().tolist() == [28]
    assert credit.in_loss.view(-1, 8, 6).sum(dim=1)[0].tolist() == [2, 2, 4, 4, 8, 8]
    np.testing.assert_allclose(credit.coefficients().reshape(-1, 8, 6).sum(axis=1), 0, atol=1e-6)


def test_forced_tokens_are_kept_or_reweighted_or_left_out():
    sample, tree = drawn(Entropy(8))
    kept, reweighted, masked = (tempo(1.0, treatment)(sample, tree) for treatment in ("keep", "reweight", "mask"))
    forced = ~masked.in_loss
    starts = sum(segment.forced for grown in sample.trees for segment in grown.segments)
    assert kept.in_loss.all() and forced.any() and forced.sum() >= starts
    np.testing.assert_array_equal(reweighted.coefficients()[~forced], kept.coefficients()[~forced])
    assert (np.abs(reweighted.coefficients()[forced]) <= np.abs(kept.coefficients()[forced])).all()
    assert np.abs(kept.coefficients()[forced]).sum() > 1.2 * np.abs(reweighted.coefficients()[forced]).sum()


@pytest.mark.parametrize(
    ("rollout", "credit"),
    [
        (Independent(4), tempo(0.0)),
        (Independent(4), tempo(1.0)),
        (Independent(4), prefix_baseline(2.0)),
        (Independent(8), adaptive()),
        (Independent(4), grpo_lambda(0.9)),
        (Fixed(2, 3), treerpo()),
        (Entropy(8), treerpo("leaves")),
        (Fixed(2, 3), adaptive()),
        (Entropy(8), tempo(1.0)),
        (Rerolled(2), rerolled_values),
        (Independent(1), ppo(1.0)),
    ],
)
def test_every_estimator_says_a_value_between_the_rewards_of_every_state(rollout, credit):
    sample, tree = drawn(rollout)
    values = credit(sample, tree).values()
    assert values.shape == sample.ids.shape
    assert values.min() >= -1e-6 and values.max() <= 1 + 1e-6
    assert values.std() > 0
