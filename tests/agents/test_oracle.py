"""The oracle's values are those of play by its shares, in each world."""

import random

import numpy as np
import pytest
import torch

from benchmarks.agents.policy import word_tokenizer
from benchmarks.agents.warm_start import lessons
from tempo_trl.data.rooms import ROOMS, STEPS, TURNS, distance, next_direction
from tempo_trl.trainers.batch import Batch

pytest.importorskip("gymnasium")

from benchmarks.agents.oracle import DONE, Oracle, turn_advantages, values
from benchmarks.agents.rules import TABLES
from benchmarks.agents.worlds import LAKE, SLIPPERY_LAKE, TAXI
from benchmarks.agents.worlds import ROOMS as NINE_ROOMS

KEY, GOAL = 2, 6
WORLDS = [NINE_ROOMS, LAKE, SLIPPERY_LAKE, TAXI]
DETERMINISTIC = [NINE_ROOMS, LAKE, TAXI]


def best_play() -> np.ndarray:
    """The shares of a policy that always makes the best call of the rooms, by cell."""
    shares = np.zeros((ROOMS**2, len(STEPS) + 1))
    for room in range(ROOMS):
        for target in range(ROOMS):
            best = len(STEPS) if room == target else list(STEPS).index(next_direction(room, target))
            shares[room * ROOMS + target, best] = 1
    return shares


def test_best_play_wins_where_the_turns_that_are_left_suffice():
    table = values(TABLES["rooms"].rules((KEY, GOAL)), best_play(), TURNS)
    for left in range(TURNS + 1):
        for room in range(ROOMS):
            needed = distance(room, KEY) + 1 + distance(KEY, GOAL)
            assert table[left, room] == (left >= needed)
            assert table[left, ROOMS + room] == (left >= distance(room, GOAL))


def batch_of(world, n: int, skill: float = 0.6, seed: int = 0) -> Batch:
    """Episodes of imperfect play as a trainer would carry them: what the agent wrote has a turn, answers have -1."""
    rows = world.rows(n, seed)
    taught = lessons(word_tokenizer(world.words), world.make, rows, random.Random(seed), skill)
    episodes = [(ids[own.index(True) :], own[own.index(True) :]) for ids, own in taught]
    size = (n, max(len(ids) for ids, _ in episodes))
    ids, turns = torch.zeros(size, dtype=torch.int64), torch.full(size, -1)
    for row, (tokens, own) in enumerate(episodes):
        starts = np.diff(own, prepend=False) & own
        ids[row, : len(tokens)] = torch.tensor(tokens)
        turns[row, : len(tokens)] = torch.from_numpy(np.where(own, np.cumsum(starts) - 1, -1))
    rewards, lengths = torch.zeros(n), torch.tensor([len(tokens) for tokens, _ in episodes])
    rewards[0] = 1
    columns = {name: [row[name] for row in rows] for name in ("start", "key", "goal") if name in rows[0]}
    none, mask = torch.zeros(n, dtype=torch.int64), turns >= 0
    observations = torch.zeros(n, int(turns.max()) + 1, dtype=torch.int64)  # the oracle reads text, not keys
    scored = (rewards, rewards[:, None], rewards, n)
    return Batch(ids, lengths, *scored, none, mask, turns, turns, observations, columns, True, mask[:, 0])


def episodes_and_shares(world, n: int):
    """Episodes, and the shares of their calls by cell."""
    oracle, batch = Oracle(world.name), batch_of(world, n)
    episodes = [oracle._episode(batch, row) for row in range(n)]
    counts = oracle._counted(episodes).numpy() + 0.01
    return episodes, counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("world", DETERMINISTIC, ids=lambda world: world.name)
def test_advantages_of_an_episode_sum_to_its_outcome_minus_the_value_of_its_start(world):
    tables, (episodes, shares) = TABLES[world.name], episodes_and_shares(world, 60)
    outcomes = []
    for episode in episodes:
        table = values(episode.rules, shares, tables.turns)
        outcomes.append(bool(episode.rules.won[episode.states[-1]]))
        total = sum(turn_advantages(episode, table))
        assert total == pytest.approx(outcomes[-1] - table[tables.turns, episode.states[0]])
    assert {True, False} == set(outcomes)


def test_giving_up_costs_what_the_state_was_worth():
    tables, (episodes, shares) = TABLES["lake"], episodes_and_shares(LAKE, 10)
    rules = tables.rules(())
    table = values(rules, shares, tables.turns)
    (episode,) = [episode for episode in episodes if len(episode.calls) > 3][:1]
    left = type(episode)(rules, episode.states[:2], [episode.calls[0], DONE])
    assert turn_advantages(left, table)[1] == -table[tables.turns - 1, episode.states[1]] < 0


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_values_are_the_share_of_episodes_that_win(world):
    """Played in the world itself by the counted shares: 500 episodes, a standard error of at most 0.023."""
    tables, rng = TABLES[world.name], np.random.default_rng(0)
    _, shares = episodes_and_shares(world, 100)
    environment, won, expected, worth = world.make(0), [], [], {}
    calls = [*environment._calls()]
    names = [f"/{name} direction= {given['direction']}" if given else f"/{name}" for name, given in calls]
    for environment._row, row in enumerate(world.rows(500, 1)):
        task = tuple(row[name] for name in tables.columns)
        rules, state = tables.rules(task), row["start"]
        environment.reset(**row)
        for _ in range(tables.turns):
            name, given = calls[names.index(tables.calls[rng.choice(len(calls), p=shares[rules.cells[state]])])]
            state = tables.state(getattr(environment, name)(**given), task)
            if rules.over[state]:
                break
        assert environment.won == rules.won[state]
        won.append(environment.won)
        if rules not in worth:
            worth[rules] = values(rules, shares, tables.turns)
        expected.append(worth[rules][-1, row["start"]])
    assert np.mean(won) == pytest.approx(np.mean(expected), abs=0.08)
    assert 0.1 < np.mean(won) < 0.95


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_batch_gets_one_advantage_per_turn_over_the_spread_of_rewards(world):
    oracle, batch = Oracle(world.name), batch_of(world, 8)
    credit = oracle(batch)
    assert (credit.advantages[batch.turns < 0] == 0).all()
    counts = (oracle.counts + credit.statistics).numpy()
    for row in range(8):
        episode = oracle._episode(batch, row)
        table = values(episode.rules, counts / counts.sum(axis=1, keepdims=True), oracle.tables.turns)
        for turn, advantage in enumerate(turn_advantages(episode, table)):
            (given,) = set(credit.advantages[row][batch.turns[row] == turn].tolist())
            assert given == pytest.approx(advantage / float(batch.rewards.std()), abs=1e-6)
    assert credit.advantages.abs().max() <= 1 / batch.rewards.std() + 1e-4
    calls = sum(len(oracle._episode(batch, row).calls) - 1 for row in range(8))
    assert credit.statistics.sum() == calls  # the last turn of each is "done"


def test_counts_of_all_ranks_are_added_and_old_ones_fade():
    oracle = Oracle("rooms")
    oracle.update([torch.ones_like(oracle.counts)] * 2)
    oracle.update([torch.zeros_like(oracle.counts)])
    assert torch.allclose(oracle.counts, torch.full_like(oracle.counts, 1.2))
    other = Oracle("rooms")
    other.load_state_dict(oracle.state_dict())
    assert other.counts.equal(oracle.counts)


def test_a_call_with_the_wrong_arguments_is_none_and_a_failed_tool_changes_no_state():
    oracle, batch = Oracle("lake"), batch_of(LAKE, 1)
    assert [oracle._call(text) for text in ("/move direction= east", "/move", "/move direction= rug", "done")] == [
        oracle.tables.calls.index("/move direction= east"),
        DONE,
        DONE,
        DONE,
    ]
    answer = torch.nonzero(batch.turns[0] == -1).flatten()
    batch.completion_ids[0, answer] = oracle._tokenizer.convert_tokens_to_ids("rug")
    assert set(oracle._episode(batch, 0).states) == {0}
