"""Returns by turn: the definition in loops, and which baselines by turn index are biased."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from tempo_trl.credit import build_prefix_tree
from tempo_trl.credit.agreement import agreements, anchor_baselines, visited_returns
from tempo_trl.credit.anchors import observation_keys, state_labels
from tempo_trl.credit.level_covariance import LevelCovariance
from tempo_trl.credit.prefix_covariance import pairwise_lcp
from tempo_trl.credit.turns import spread_turns, steps_of, turn_returns, turn_starts

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


def test_without_rewards_per_turn_the_return_is_the_outcome():
    rollouts = Rollouts(1)
    returns = turn_returns(None, rollouts.turns, rollouts.rewards)
    spread = spread_turns(returns, rollouts.turns)
    assert torch.equal(spread, torch.where(rollouts.turns >= 0, rollouts.rewards.double()[:, None], 0.0))


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


# An agent that stops after its first turn, for 0.4, or goes on to a second one, where its second action wins 1.
STOPS, WINS = 0.3, 0.6


def games():
    """(stops, second action or None, probability, reward)"""
    yield 1, None, STOPS, 0.4
    for action in (0, 1):
        yield 0, action, (1 - STOPS) * (WINS if action else 1 - WINS), float(action)


def score(stops: int, action: int | None) -> np.ndarray:
    """Gradient of the log-probabilities of the turns by the logits of stopping and of winning, `(2 turns, 2)`."""
    return np.array([[stops - STOPS, 0.0], [0.0, 0.0 if action is None else action - WINS]])


def expected_gradient(baseline, size: int) -> np.ndarray:
    total = np.zeros(2)
    for chosen in product(games(), repeat=size):
        returns = np.array([[reward, math.nan if action is None else reward] for _, action, _, reward in chosen])
        errors = np.nan_to_num(returns - baseline(chosen, returns))
        weight = math.prod(p for _, _, p, _ in chosen)
        total += weight * sum(
            error @ score(stops, action) for error, (stops, action, _, _) in zip(errors, chosen, strict=True)
        )
    return total / size


def mean_by_turn(chosen, returns) -> np.ndarray:
    """The mean of the completions that have such a turn, the own among them."""
    return np.nanmean(np.where(np.isnan(returns).all(axis=0), 0.0, returns), axis=0, keepdims=True)


def mean_of_others_by_turn(chosen, returns) -> np.ndarray:
    """The mean of the other completions that have such a turn; 0 where there is none."""
    known = ~np.isnan(returns)
    others = known.sum(axis=0) - known
    return (np.nansum(returns, axis=0) - np.nan_to_num(returns)) / np.maximum(others, 1)


def mean_of_others_or_own(chosen, returns) -> np.ndarray:
    """The same, but where there is none the own return: who is alone in a turn gets no gradient there."""
    others = (~np.isnan(returns)).sum(axis=0) > 1
    return np.where(others, mean_of_others_by_turn(chosen, returns), returns)


def by_state(chosen, returns) -> np.ndarray:
    rows = [[stops, -1, 0] if action is None else [stops, 9, action] for stops, action, _, _ in chosen]
    turns = torch.tensor([[0, -1, -1] if action is None else [0, -1, 1] for _, action, _, _ in chosen])
    if (turns < 1).all():
        turns = turns[:, :1]
    ids, lengths = torch.tensor(rows), np.array([1 if action is None else 3 for _, action, _, _ in chosen])
    size = len(chosen)
    labels = state_labels(observation_keys(ids[:, : turns.shape[1]], turns, torch.zeros(size, dtype=torch.long)), size)
    tree = build_prefix_tree(ids.numpy(), lengths, size)
    starts = turn_starts(turns).numpy()
    states = agreements(labels, starts, pairwise_lcp(tree))
    baselines = np.full(returns.shape, np.nan)
    earned = visited_returns(returns, returns[:, 0], states)
    baselines[states.row, states.turn] = anchor_baselines(earned, states, LevelCovariance())
    return baselines


EXACT = sum(p * reward * score(stops, action).sum(axis=0) for stops, action, p, reward in games())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("baseline", [by_state, mean_of_others_by_turn])
def test_a_baseline_of_the_others_alone_is_unbiased_by_state_and_by_turn_index(baseline, size):
    np.testing.assert_allclose(expected_gradient(baseline, size), EXACT, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_a_mean_by_turn_index_with_the_own_return_is_biased_where_the_policy_chooses_when_to_stop(size):
    """A turn that n completions have keeps (n - 1) / n of its gradient: less for later turns, which fewer have."""
    kept = [math.comb(size - 1, k) * (1 - STOPS) ** k * STOPS ** (size - 1 - k) * k / (k + 1) for k in range(size)]
    biased = expected_gradient(mean_by_turn, size) / EXACT
    np.testing.assert_allclose(biased, [(size - 1) / size, sum(kept)])
    assert biased[1] < 0.9 * biased[0]


@pytest.mark.parametrize("size", [2, 3])
def test_skipping_who_is_alone_in_a_turn_is_biased_by_how_often_that_happens(size):
    biased = expected_gradient(mean_of_others_or_own, size) / EXACT
    np.testing.assert_allclose(biased, [1.0, 1 - STOPS ** (size - 1)])
