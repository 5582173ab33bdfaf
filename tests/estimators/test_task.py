"""True values, advantages and gradient: by hand, by enumeration of completions, and by autograd."""

import numpy as np
import pytest
import torch

from benchmarks.estimators.task import Task

from .trees import HAND, completions, random_tree, steps


def test_an_expected_completion_of_the_tree_is_its_value():
    tree = random_tree()
    _, probability, success = completions(tree)
    assert probability.sum() == pytest.approx(1)
    assert tree.values[0] == pytest.approx(probability @ success)


def test_the_gradient_is_autograd_s_of_the_success_rate_summed_over_all_completions():
    tree = random_tree()
    logits = torch.tensor(tree.logits, requires_grad=True)
    logps = logits.log_softmax(dim=1)
    ids, _, success = completions(tree)
    chances = torch.stack([sum(logps[n, t] for n, t in steps(tree, row)).exp() for row in ids])
    (gradient,) = torch.autograd.grad(chances @ torch.tensor(success), logits)
    assert tree.tabular_gradient == pytest.approx(gradient.numpy())


def test_the_pooled_gradient_is_that_of_logits_that_a_depth_shares():
    tree = random_tree(depth=2)
    shared = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    logits = torch.tensor(tree.logits) + shared[[0, 1, 1, 1]]
    policy = logits.softmax(dim=1)
    value = policy[0] @ (policy[1:] * torch.tensor(tree.success).view(3, 3)).sum(dim=1)
    (gradient,) = torch.autograd.grad(value, shared)
    assert tree.gradient == pytest.approx(gradient.numpy())


def test_the_mean_score_of_a_state_is_zero_and_it_is_the_derivative_of_the_log_probability():
    tree = random_tree(depth=1)
    scores = tree.score(tree.nodes(np.arange(3)[:, None]))[:, 0]
    assert tree.policy[0] @ scores == pytest.approx(np.zeros(3))
    logits = torch.tensor(tree.logits[0], requires_grad=True)
    (expected,) = torch.autograd.grad(logits.log_softmax(dim=0)[1], logits)
    assert scores[1] == pytest.approx(expected.numpy())


@pytest.mark.parametrize("importance", [1.0, 0.7, (0.5, 0.9)])
def test_the_success_rate_is_what_was_asked_for(importance):
    task = Task((0, 2), success=0.4, importance=importance, depth=4, vocabulary=3)
    assert task.tree().values[0] == pytest.approx(0.4)


def test_a_wrong_decisive_token_multiplies_the_success_and_an_irrelevant_one_does_nothing():
    tree = Task((0, 2), success=0.5, importance=0.6, depth=3).tree()
    # Completions in order: 000, 001, 010, 011, 100, ...; a wrong one leaves 0.4.
    assert tree.success == pytest.approx([1, 0.4, 1, 0.4, 0.4, 0.16, 0.4, 0.16])
    assert tree.advantages[tree.level(1)] == pytest.approx(np.zeros((2, 2)))
    assert (np.abs(tree.advantages[tree.level(2)]) > 0.01).all()


def test_decisive_tokens_can_matter_unequally():
    tree = Task((0, 1), success=0.5, importance=(0.5, 1.0), depth=2).tree()
    assert tree.success == pytest.approx([1, 0, 0.5, 0])


def test_irrelevant_entropy_goes_from_none_to_uniform():
    assert Task((0,), irrelevant=1.0, vocabulary=4).distributions()[1] == pytest.approx([0.25] * 4)
    assert Task((0,), irrelevant=0.2, vocabulary=4).distributions()[1] == pytest.approx([0.85, 0.05, 0.05, 0.05])
    assert Task((0,), irrelevant=0.0).distributions()[1] == pytest.approx([1, 0], abs=1e-5)


def test_a_success_rate_that_importance_does_not_allow_is_refused():
    with pytest.raises(ValueError, match="Raise `importance`"):
        Task((0,), success=0.1, importance=0.5).tree()


def test_the_expected_sharing_is_the_chance_that_another_completion_comes_the_same_way():
    # HAND: after one token both are in 0 with (3/4)^2 and both in 1 with (1/4)^2.
    assert HAND.sharing(5) == pytest.approx([5, 1 + 4 * 10 / 16])
