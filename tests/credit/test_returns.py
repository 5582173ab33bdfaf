"""Whole returns and the scale of returns from a turn on: the definition in loops, and reductions."""

import math

import numpy as np
import pytest
import torch

from tempo_trl.credit.advantages import outcome_scale
from tempo_trl.credit.returns import TurnRewards, return_scale

from .rollouts import Rollouts

SEEDS = pytest.mark.parametrize("seed", range(12))


def rewards_of(rollouts: Rollouts, seed: int) -> TurnRewards:
    rng = np.random.default_rng(seed)
    steps = torch.from_numpy(rng.normal(size=rollouts.starts.shape))
    steps[torch.from_numpy(rng.random(steps.shape) < 0.2)] = torch.nan
    rollouts.rewards[seed % len(rollouts.rewards)] = torch.nan
    return TurnRewards(rollouts.rewards, rollouts.turns, steps)


def scale_by_definition(rewards: TurnRewards, gamma: float) -> float:
    whole, changes = [], []
    for row in range(len(rewards.reward)):
        outcome, count = float(rewards.reward[row]), int(rewards.turns[row].max()) + 1
        steps = torch.zeros(count) if rewards.steps is None else rewards.steps[row].nan_to_num(0.0)
        given = [float(steps[n]) for n in range(count)]
        if math.isnan(outcome):
            continue
        whole.append(sum(given) + outcome)
        following = outcome
        for n in reversed(range(count)):
            own = given[n] + (outcome if n == count - 1 else gamma * following)
            changes.append(own - following)
            following = own
    spread = np.std(whole, ddof=1) if len(whole) > 1 else 0.0
    return max(spread, math.sqrt(np.mean(np.square(changes))) if changes else 0.0) + 1e-4


@SEEDS
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_scale_is_that_of_the_definition(seed, gamma):
    rollouts = Rollouts(seed, groups=3, size=4)
    rewards = rewards_of(rollouts, seed)
    assert return_scale(rewards, gamma).item() == pytest.approx(scale_by_definition(rewards, gamma))


@SEEDS
@pytest.mark.parametrize("zeros", [True, False])
def test_without_rewards_per_turn_and_discount_it_is_grpos(seed, zeros):
    rollouts = Rollouts(seed, size=4)
    steps = torch.zeros(rollouts.starts.shape) if zeros else None
    computed = return_scale(TurnRewards(rollouts.rewards, rollouts.turns, steps))
    assert (computed == outcome_scale(rollouts.rewards.double(), 4, "batch")).all()


def test_the_whole_return_of_a_completion_without_a_turn_is_its_outcome():
    turns = torch.tensor([[-1, -1], [0, 1], [0, -1]])
    steps = torch.tensor([[torch.nan, torch.nan], [1.0, 2.0], [4.0, torch.nan]])
    outcome = torch.tensor([0.5, 0.25, torch.nan])
    whole = TurnRewards(outcome, turns, steps).whole_returns()
    assert whole[:2].tolist() == [0.5, 3.25] and whole[2].isnan()
    assert TurnRewards(outcome, turns.fill_(-1), steps[:, :0]).whole_returns()[:2].tolist() == [0.5, 0.25]
