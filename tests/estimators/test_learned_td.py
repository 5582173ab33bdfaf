"""The experiment with a learned coefficient of TD errors: its two ends, and what earlier batches justify."""

import numpy as np
import pytest
import torch

from benchmarks.estimators.estimators import kernel
from benchmarks.estimators.learned_td import COEFFICIENTS, justified, learned, over_values, traced
from benchmarks.estimators.rollouts import Independent
from benchmarks.estimators.task import Task

TASK = Task((1, 3), depth=6, importance=0.8)
OVER = torch.tensor([[0.5, 0.25, -0.5]])


def test_by_hand_a_coefficient_of_0_keeps_the_baseline_and_1_leaves_its_steps():
    assert over_values(OVER, 0.0).tolist() == OVER.tolist()
    assert over_values(OVER, 1.0).tolist() == [[0.25, 0.75, -0.5]]
    assert over_values(OVER, 0.5).tolist() == [[0.25 + 0.5 * 0.5, 0.5, -0.5]]  # 0.75 + 0.5 * -0.5 is 0.5


def test_what_points_better_is_taken_and_what_may_be_chance_is_not():
    rng, true = np.random.default_rng(0), np.zeros(20)
    true[0] = 1
    noise = rng.normal(0, 1, (2, 16, 20))
    better = np.stack([true + noise[0], true + 0.3 * noise[0]])
    assert justified(better) == 1
    assert justified(better[::-1]) == 0
    assert justified(better[:, :2]) == 0  # too few batches
    assert justified(np.stack([noise[0], noise[1]])) == 0


def test_the_first_batches_have_the_kernel_baseline_itself():
    tree = TASK.tree()
    sample = Independent(8).sample(tree, 960, 12, np.random.default_rng(0))
    advantages, plain = learned(sample, tree).advantages, kernel(sample, tree).advantages
    first = slice(0, sample.bounds[3])
    assert torch.allclose(advantages[first], plain[first], atol=1e-6)
    possible = torch.stack([over_values(plain, c) for c in COEFFICIENTS])
    assert (possible == advantages).all(dim=2).any(dim=0).all()


@pytest.mark.parametrize("coefficient", [0.0, 0.3])
def test_values_and_advantages_of_a_row_add_up_to_its_outcome(coefficient):
    tree = TASK.tree()
    sample = Independent(4).sample(tree, 480, 2, np.random.default_rng(0))
    plain, credit = kernel(sample, tree).advantages, traced(coefficient)(sample, tree).advantages
    assert torch.allclose(credit[:, -1], plain[:, -1])
    assert torch.allclose(over_values(plain, 1.0).sum(dim=1), plain[:, 0], atol=1e-6)
