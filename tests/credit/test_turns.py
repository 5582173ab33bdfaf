"""Returns by turn: the definition in loops."""

import numpy as np
import pytest
import torch

from tempo_trl.credit.turns import steps_of, turn_returns

from .rollouts import Rollouts


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_returns_are_those_of_the_definition(seed, gamma):
    rollouts, rng = Rollouts(seed), np.random.default_rng(seed)
    rewards = torch.from_numpy(rng.normal(size=rollouts.starts.shape)).float()
    rewards[rng.random(rewards.shape) < 0.3] = torch.nan
    rollouts.rewards[0] = torch.nan
    returns = turn_returns(rewards, rollouts.turns, rollouts.rewards, gamma)
    for row in range(len(returns)):
        count = int(rollouts.turns[row].max()) + 1
        assert returns[row, count:].isnan().all()
        for n in range(count):
            later = [(m, float(rewards[row, m])) for m in range(n, count) if not rewards[row, m].isnan()]
            expected = sum(gamma ** (m - n) * reward for m, reward in later)
            expected += gamma ** (count - 1 - n) * float(rollouts.rewards[row])
            assert float(returns[row, n]) == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_what_does_not_fit_is_refused():
    turns = torch.tensor([[0, -1, 1]])
    with pytest.raises(ValueError, match=r"`step_rewards` must be \(1, 2\), one per turn, got shape \(1, 1\)"):
        turn_returns(torch.zeros(1, 1), turns, torch.zeros(1))
    with pytest.raises(ValueError, match=r"`reward` must be \(1,\)"):
        turn_returns(None, turns, torch.zeros(2))
    with pytest.raises(ValueError, match=r"`gamma` must be between 0 and 1, got 1\.5"):
        turn_returns(None, turns, torch.zeros(1), 1.5)


def test_a_step_ends_with_its_delimiter_or_its_turn():
    turns = torch.tensor([[0, 0, 0, -1, -1, 1, 1, 1, -1], [-1, 0, 0, 0, 0, -1, 1, -1, 2]])
    ends = torch.zeros(turns.shape, dtype=torch.bool)
    ends[0, 1] = ends[0, 7] = ends[1, 1] = ends[1, 2] = True
    steps = [[0, 0, 1, -1, -1, 2, 2, 2, -1], [-1, 0, 1, 2, 2, -1, 3, -1, 4]]
    assert steps_of(turns, ends).tolist() == steps
