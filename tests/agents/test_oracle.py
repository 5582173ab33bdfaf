"""The oracle's values are those of play by its shares."""

import random

import numpy as np
import pytest
import torch

from benchmarks.agents.oracle import CALLS, DONE, RoomsOracle, _advantages, after, values
from tempo_trl.demo.rooms import ROOMS, TURNS, WORDS, distance, next_direction
from tempo_trl.trainers.batch import Batch

KEY, GOAL = 2, 6


def best_play() -> np.ndarray:
    shares = np.zeros((ROOMS, ROOMS, len(CALLS)))
    for room in range(ROOMS):
        for target in range(ROOMS):
            best = "take" if room == target else next_direction(room, target)
            shares[room, target, CALLS.index(best)] = 1
    return shares


def test_best_play_wins_where_the_turns_that_are_left_suffice():
    table = values(KEY, GOAL, best_play())
    for left in range(TURNS + 1):
        for room in range(ROOMS):
            needed = distance(room, KEY) + 1 + distance(KEY, GOAL)
            assert table[left, 0, room] == (left >= needed)
            assert table[left, 1, room] == (left >= distance(room, GOAL))


def test_values_are_the_share_of_episodes_that_win():
    rng, shares = np.random.default_rng(0), np.full((ROOMS, ROOMS, len(CALLS)), 1 / len(CALLS))
    shares = 0.5 * shares + 0.5 * best_play()
    won = 0
    for _ in range(2000):
        room, carries = 4, False
        for _ in range(TURNS):
            room, carries = after(room, carries, KEY, rng.choice(len(CALLS), p=shares[room, GOAL if carries else KEY]))
            if carries and room == GOAL:
                won += 1
                break
    assert won / 2000 == pytest.approx(values(KEY, GOAL, shares)[TURNS, 0, 4], abs=0.04)


def test_advantages_of_an_episode_sum_to_its_outcome_minus_the_value_of_its_start():
    rng, table = random.Random(0), values(KEY, GOAL, 0.1 + 0.5 * best_play())
    for _ in range(50):
        calls = [rng.randrange(len(CALLS)) for _ in range(rng.randrange(TURNS))] + [DONE]
        room, carries, over = 4, False, False
        for call in calls[:-1]:
            if not over:
                room, carries = after(room, carries, KEY, call)
            over = carries and room == GOAL
        total = sum(_advantages(calls, 4, KEY, GOAL, table))
        assert total == pytest.approx(float(over) - table[TURNS, 0, 4])


def batch_of(*texts: str) -> Batch:
    from tempo_trl.demo.agent_policy import word_tokenizer

    ids = word_tokenizer(WORDS)(list(texts), padding=True, padding_side="right", return_tensors="pt")
    lengths = ids.attention_mask.sum(1)
    turns = torch.full(ids.input_ids.shape, -1)
    for row, text in enumerate(texts):
        turn, inside = 0, True
        for column, word in enumerate(text.split()):
            turns[row, column] = turn if inside else -1
            if word == "<end>":
                turn, inside = turn + 1, False
            inside = inside or word == "<agent>"
    rewards = torch.tensor([1.0, 0.0])
    columns = {"start": [0, 0], "key": [1, 1], "goal": [0, 0]}
    zeros = torch.zeros(2, dtype=torch.int64)
    mask = turns >= 0
    scored = (rewards, rewards[:, None], rewards, 2)
    observations = torch.zeros(2, int(turns.max()) + 1, dtype=torch.int64)  # the oracle reads calls, not keys
    return Batch(ids.input_ids, lengths, *scored, zeros, mask, turns, turns, observations, columns, True, mask[:, 0])


def test_each_token_of_a_turn_gets_the_advantage_of_its_call_and_tokens_of_the_world_get_none():
    go = "/go direction= {} <end> <tool> room1 ; dust lamp <agent>"
    take = "/take <end> <tool> room1 key ; dust rug <agent>"
    batch = batch_of(
        " ".join([go.format("east"), take, go.format("west"), "done <end>"]),
        " ".join([go.format("north"), go.format("north"), "done <end>"]),
    )
    oracle = RoomsOracle()
    credit = oracle(batch)
    for row in (0, 1):
        for turn in range(int(batch.turns[row].max()) + 1):
            assert len(set(credit.advantages[row][batch.turns[row] == turn].tolist())) == 1
        assert not credit.advantages[row][batch.turns[row] == -1].any()
    assert credit.advantages[0, 0] > 0 > credit.advantages[1, 0]
    assert credit.statistics.sum() == 5
    before = oracle.counts.clone()
    oracle.update([credit.statistics])
    assert torch.equal(oracle.counts, before + credit.statistics)
