"""States that come back: the definitions in loops, reductions, and unbiasedness by exact expectation."""

from itertools import product

import numpy as np
import pytest
import torch

from tempo_trl.credit.anchors import observation_keys, relative_returns, state_labels, visits
from tempo_trl.credit.turns import steps_of, turn_returns
from tempo_trl.trainers.agents import first_steps

from .rollouts import OBSERVED, Rollouts

SEEDS = pytest.mark.parametrize("seed", range(12))


@SEEDS
def test_labels_are_equal_where_the_last_observations_are(seed):
    rollouts = Rollouts(seed)
    for history, labels in enumerate(state_labels(rollouts.observations, rollouts.size, 2)):
        seen = {}
        for row in range(len(labels)):
            for n, own in enumerate(rollouts.histories(row)):
                seen[row, n] = (row // rollouts.size, own[-history - 1 :])
            assert (labels[row, len(rollouts.histories(row)) :] == -1).all()
        for first, second in product(seen, seen):
            assert (labels[first] == labels[second]) == (seen[first] == seen[second])


@SEEDS
@pytest.mark.parametrize("history", [0, 1, 3])
def test_steps_within_turns_do_not_change_what_a_turn_has_seen_before(seed, history):
    rollouts = Rollouts(seed)
    steps = steps_of(rollouts.turns, rollouts.ids == 1)
    first = first_steps(rollouts.turns, steps)
    keys = observation_keys(rollouts.ids, steps, rollouts.prompts)
    for of_turns, of_steps in zip(
        state_labels(rollouts.observations, rollouts.size, history),
        state_labels(keys, rollouts.size, history, first),
        strict=True,
    ):
        there = of_turns >= 0
        ours = np.take_along_axis(of_steps, first.numpy().clip(min=0), axis=1)[there]
        assert np.array_equal(ours[:, None] == ours, of_turns[there][:, None] == of_turns[there])


def test_a_key_uses_nothing_that_comes_after_the_state():
    rollouts = Rollouts(3, states=3)
    row = max(range(len(rollouts.texts)), key=lambda r: max(turn for _, turn in rollouts.texts[r]))
    for n in range(int(rollouts.turns[row].max()) + 1):
        start, changed = int(rollouts.starts[row, n]), rollouts.ids.clone()
        changed[row, start:] += 1
        keys = observation_keys(changed, rollouts.turns, rollouts.prompts)
        assert torch.equal(keys[row, : n + 1], rollouts.observations[row, : n + 1])


@SEEDS
@pytest.mark.parametrize("normalize", [True, False])
def test_relative_returns_are_those_of_the_definition(seed, normalize):
    rollouts = Rollouts(seed, size=4)
    returns = turn_returns(None, rollouts.turns, rollouts.rewards, 0.9)
    labels = state_labels(rollouts.observations, rollouts.size)[0]
    computed = relative_returns(returns, labels, normalize)
    for row, n in np.argwhere(labels >= 0):
        members = [float(returns[r, m]) for r, m in np.argwhere(labels == labels[row, n])]
        assert visits(labels)[row, n] == len(members)
        expected = float(returns[row, n]) - np.mean(members)
        if normalize and len(members) > 1:
            expected /= np.std(members, ddof=1) + 1e-6
        assert float(computed[row, n]) == pytest.approx(expected, rel=1e-4, abs=1e-4)


# A world of two rooms, enumerated. From room 0 or 1 an action goes on to a room (0: the same, 1: the other one) or, in
# the third turn, ends. Rooms come back within a trajectory and over trajectories. The reward depends on everything.

PROBABILITIES = {0: 0.3, 1: 0.6}  # of action 1, by room


def trajectories():
    """All (actions, rooms, probability, reward) of three turns from room 0."""
    for actions in product((0, 1), repeat=3):
        rooms, probability = [0], 1.0
        for action in actions:
            p = PROBABILITIES[rooms[-1]]
            probability *= p if action else 1 - p
            rooms.append(rooms[-1] ^ action)
        yield actions, rooms[:3], probability, float(rooms[3] + 2 * rooms[1] * actions[2])


def score(actions, rooms) -> np.ndarray:
    """Gradient of the log-probability of each action by the two logits of action 1, `(3, 2)`."""
    found = np.zeros((3, 2))
    for n, (action, room) in enumerate(zip(actions, rooms, strict=True)):
        found[n, room] = action - PROBABILITIES[room]
    return found


def as_tokens(chosen) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, `a obs a obs a`, and their turns."""
    rows = [
        [actions[0], OBSERVED + rooms[1], actions[1], OBSERVED + rooms[2], actions[2]]
        for actions, rooms, _, _ in chosen
    ]
    return torch.tensor(rows), torch.tensor([[0, -1, 1, -1, 2]] * len(rows))


def test_the_mean_over_the_visits_of_a_state_is_biased():
    """GiGPO's advantage within a state has its own return in the mean, several times where a state comes back."""
    everything = list(trajectories())
    exact = sum(p * reward * score(actions, rooms).sum(axis=0) for actions, rooms, p, reward in everything)
    expected = np.zeros(2)
    for chosen in product(everything, repeat=2):
        ids, turns = as_tokens(chosen)
        labels = state_labels(observation_keys(ids, turns, torch.zeros(2, dtype=torch.long)), 2)[0]
        returns = torch.tensor([[reward] * 3 for *_, reward in chosen])
        advantages = relative_returns(returns, labels, normalize=False).double().numpy()
        weight = np.prod([p for _, _, p, _ in chosen])
        for row, (actions, rooms, _, _) in enumerate(chosen):
            expected += weight * (advantages[row, :, None] * score(actions, rooms)).sum(axis=0) / 2
    assert np.abs(expected - exact).max() > 0.05
    direction = expected @ exact / np.linalg.norm(expected) / np.linalg.norm(exact)
    assert direction < 0.9999  # not a matter of scale alone
