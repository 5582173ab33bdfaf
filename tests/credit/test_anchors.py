"""States that come back: the definitions in loops, and steps within turns."""

from itertools import product

import numpy as np
import pytest

from tempo_trl.credit.anchors import observation_keys, relative_returns, state_labels, visits
from tempo_trl.credit.turns import first_steps, steps_of, turn_returns

from .rollouts import Rollouts

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
