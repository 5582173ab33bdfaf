"""States that come back: the definitions in loops, reductions, and unbiasedness by exact expectation."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from tempo_trl.credit import build_prefix_tree
from tempo_trl.credit.agreement import (
    States,
    agreements,
    anchor_baselines,
    anchor_statistics,
    lambda_advantages,
    visited_returns,
)
from tempo_trl.credit.anchors import observation_keys, relative_returns, state_labels, visits
from tempo_trl.credit.level_covariance import LevelCovariance, PairStatistics
from tempo_trl.credit.prefix_covariance import pairwise_lcp
from tempo_trl.credit.turns import steps_of, turn_returns, turn_starts
from tempo_trl.trainers.agents import first_steps

from .groups import mean_of_others, predicted_by_definition
from .rollouts import OBSERVED, Rollouts
from .test_prefix_baseline import covariance

SEEDS = pytest.mark.parametrize("seed", range(12))
RISING = covariance(0.0, 0.0, 0.3, 0.5, 0.6, 0.9)  # by level of agreement


def states_of(rollouts: Rollouts, history: int = 1) -> States:
    tree = build_prefix_tree(rollouts.ids.numpy(), rollouts.lengths.numpy(), rollouts.size, rollouts.prompts.numpy())
    labels = state_labels(rollouts.observations, rollouts.size, history)
    return agreements(labels, rollouts.starts.numpy(), pairwise_lcp(tree))


def level_by_definition(rollouts: Rollouts, row: int, n: int, other: int, history: int) -> tuple[int, int]:
    """Closest agreement of another row with the state before turn n, and the first turn at which it agrees so."""
    if rollouts.prompts[row] != rollouts.prompts[other]:
        return 0, 0
    if n == 0:
        return 1, 0
    own, theirs = rollouts.histories(row)[: n + 1][-1], rollouts.histories(other)
    start = int(rollouts.starts[row, n])
    same_tokens = [text[0] for text in rollouts.texts[row]][:start] == [t[0] for t in rollouts.texts[other]][:start]
    if same_tokens and n < len(theirs) and int(rollouts.starts[other, n]) == start:
        return 3 + history, n
    found = (1, 0)
    for compared in range(history + 1):
        for m, seen in enumerate(theirs):
            if own[-compared - 1 :] == seen[-compared - 1 :] and found[0] < 2 + compared:
                found = 2 + compared, m
    return found


@SEEDS
@pytest.mark.parametrize("history", [0, 1, 2])
def test_agreement_is_that_of_the_definition(seed, history):
    rollouts = Rollouts(seed, prompts=1 + seed % 2)
    states = states_of(rollouts, history)
    turns = [(row, n) for row in range(len(rollouts.texts)) for n in range(len(rollouts.histories(row)))]
    assert list(zip(states.row.tolist(), states.turn.tolist(), strict=True)) == turns
    for (row, n), level, visit in zip(turns, states.level.tolist(), states.visit.tolist(), strict=True):
        for k, other in enumerate(rollouts.group(row)):
            if other != row:
                assert (level[k], visit[k]) == level_by_definition(rollouts, row, n, other, history), (row, n, other)


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


def baselines_of(returns: np.ndarray, states: States, learned: LevelCovariance) -> np.ndarray:
    """Baselines by row and turn, NaN where there is none; every completion has a turn."""
    earned = visited_returns(returns, returns[:, 0], states)
    found = np.full(returns.shape, np.nan)
    found[states.row, states.turn] = anchor_baselines(earned, states, learned)
    return found


@SEEDS
def test_a_baseline_does_not_depend_on_its_own_completion(seed):
    rollouts = Rollouts(seed, groups=1)
    returns = np.where(rollouts.starts.numpy() >= 0, rollouts.rewards.numpy()[:, None].astype(float), np.nan)
    before = baselines_of(returns, states_of(rollouts), RISING)
    returns[0] += 5.0
    after = baselines_of(returns, states_of(rollouts), RISING)
    np.testing.assert_array_equal(before[0], after[0])


def baseline_by_definition(returns, states, s, learned) -> float:
    row, n, size = states.row[s], states.turn[s], states.level.shape[1]
    first = row // size * size
    others = [k for k in range(size) if first + k != row and not math.isnan(returns[first + k, 0])]
    if not others:
        return returns[row, n]
    level = states.level[s, others]
    past = returns[row, 0] - returns[row, n]
    earned = np.array(
        [
            returns[first + k, states.visit[s, k]] if a >= 2 else returns[first + k, 0] - past
            for k, a in zip(others, level, strict=True)
        ]
    )
    return predicted_by_definition(np.minimum.outer(level, level), level, earned, learned)


@SEEDS
def test_baselines_are_those_of_the_definition(seed):
    rollouts, rng = Rollouts(seed, size=4, prompts=1 + seed % 2), np.random.default_rng(seed)
    rollouts.rewards[seed % 8] = torch.nan
    steps = torch.from_numpy(rng.normal(size=rollouts.starts.shape))
    returns = turn_returns(steps, rollouts.turns, rollouts.rewards).numpy()
    states = states_of(rollouts)
    computed = baselines_of(returns, states, RISING)
    for s, (row, n) in enumerate(zip(states.row, states.turn, strict=True)):
        if not math.isnan(returns[row, n]):
            assert computed[row, n] == pytest.approx(baseline_by_definition(returns, states, s, RISING), abs=1e-9)


@SEEDS
def test_a_baseline_over_others_that_earned_the_same_is_exactly_that(seed):
    """So an advantage of 0 has no rounding error for a small scale to blow up."""
    rollouts, reward = Rollouts(seed), np.random.default_rng(seed).normal() / 3
    returns = np.where(rollouts.starts.numpy() >= 0, reward, np.nan)
    computed = baselines_of(returns, states_of(rollouts), RISING)
    assert (computed[rollouts.starts.numpy() >= 0] == reward).all()


@SEEDS
@pytest.mark.parametrize("trace_lambda", [0.0, 0.7, 1.0])
def test_generalized_advantages_are_sums_of_td_errors(seed, trace_lambda):
    rng = np.random.default_rng(seed)
    turns, reward = rng.integers(1, 6), rng.normal()
    values, rewards = np.append(rng.normal(size=turns), 0.0), np.append(np.zeros(turns - 1), reward)
    delta = rewards + values[1:] - values[:-1]
    expected = [sum(trace_lambda**k * delta[n + k] for k in range(turns - n)) for n in range(turns)]
    errors = np.append(reward - values[:-1], np.nan)[None]
    computed = lambda_advantages(errors, trace_lambda)[0]
    np.testing.assert_allclose(computed, [*expected, 0.0], atol=1e-12)


def test_states_that_tell_nothing_give_rloo():
    rollouts = Rollouts(5)
    returns = np.where(rollouts.starts.numpy() >= 0, rollouts.rewards.numpy()[:, None].astype(float), np.nan)
    computed = baselines_of(returns, states_of(rollouts), LevelCovariance())
    there = rollouts.starts.numpy() >= 0
    expected = np.broadcast_to(mean_of_others(rollouts.rewards, 3).numpy()[:, None], there.shape)
    np.testing.assert_allclose(computed[there], expected[there])


@SEEDS
def test_statistics_are_the_products_of_the_definition_and_add_over_ranks(seed):
    rollouts = Rollouts(seed, size=4)
    returns, states = turn_returns(None, rollouts.turns, rollouts.rewards).numpy(), states_of(rollouts)
    earned = visited_returns(returns, returns[:, 0], states)
    found = anchor_statistics(earned, states, np.ones(len(returns), dtype=bool))
    products = {}
    for row, levels in zip(states.row, states.level.tolist(), strict=True):
        group = rollouts.rewards[list(rollouts.group(row))].double().numpy()
        if group.max() == group.min():
            continue
        mean, variance = group.mean(), group.var(ddof=1)
        for k, other in enumerate(rollouts.group(row)):
            if other != row:
                value = (rollouts.rewards[row] - mean) * (group[k] - mean) * 4 / 3 + variance / 4
                products.setdefault(levels[k], []).append(float(value))
    assert found.levels.tolist() == sorted(products)
    np.testing.assert_allclose(found.products, [sum(products[level]) for level in sorted(products)], atol=1e-6)
    assert found.pairs.tolist() == [len(products[level]) for level in sorted(products)]

    halves = [np.arange(len(returns)) % 2 == part for part in range(2)]
    summed = sum((anchor_statistics(earned, states, half) for half in halves), PairStatistics())
    assert summed.pairs.tolist() == found.pairs.tolist()
    np.testing.assert_allclose(summed.products, found.products)


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


@pytest.mark.parametrize("learned", [LevelCovariance(), RISING], ids=["rloo", "anchors"])
def test_the_expected_gradient_is_exact_where_states_come_back(learned):
    everything = list(trajectories())
    exact = sum(p * reward * score(actions, rooms).sum(axis=0) for actions, rooms, p, reward in everything)
    expected = np.zeros(2)
    for chosen in product(everything, repeat=3):
        ids, turns = as_tokens(chosen)
        prompts = torch.zeros(3, dtype=torch.long)
        labels = state_labels(observation_keys(ids, turns, prompts), 3, 1)
        tree = build_prefix_tree(ids.numpy(), np.full(3, 5), 3)
        states = agreements(labels, turn_starts(turns).numpy(), pairwise_lcp(tree))
        returns = np.array([[reward] * 3 for *_, reward in chosen])
        advantages = returns - baselines_of(returns, states, learned)
        weight = np.prod([p for _, _, p, _ in chosen])
        for row, (actions, rooms, _, _) in enumerate(chosen):
            expected += weight * (advantages[row, :, None] * score(actions, rooms)).sum(axis=0) / 3
    np.testing.assert_allclose(expected, exact, atol=1e-12)


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
