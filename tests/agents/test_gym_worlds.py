"""Gymnasium's worlds in words: its rules and its transitions."""

import random

import pytest

pytest.importorskip("gymnasium")

from benchmarks.agents.gym_worlds import FrozenLake, Taxi, lake_rows, short_tasks, taxi_rows
from benchmarks.agents.policy import word_tokenizer
from benchmarks.agents.warm_start import lessons, played
from benchmarks.agents.worlds import LAKE, TAXI
from tempo_trl.data.rooms import state_text

WORLDS = [LAKE, TAXI]


def test_the_lake_is_gymnasium_s():
    lake = FrozenLake(0)
    assert lake.reset(0) == "square0"
    assert [state_text(lake.move(direction)) for direction in ("east", "south")] == ["square1", "square5 fell"]
    assert state_text(lake.move("west")) == "square5 fell"
    lake.reset(0)
    way = ["south", "south", "east", "east", "south", "east"]
    assert [state_text(lake.move(direction)) for direction in way][-1] == "square15 won"
    assert lake.won


def test_the_taxi_is_gymnasium_s():
    for row in taxi_rows(5, random.Random(0)):
        taxi = Taxi(0)
        messages = played(taxi, row, random.Random(0), skill=1.0)
        assert taxi.won
        assert state_text(messages[-2]["content"]).endswith("won")
        assert len(messages) <= 2 * 11 + 2


def test_the_splits_share_no_task():
    def drawn(draw, split, column):
        return {row[column] for row in draw(500, random.Random(0), split)}

    assert not drawn(taxi_rows, "train", "start") & drawn(taxi_rows, "test", "start")
    assert not drawn(lake_rows, "train", "seed") & drawn(lake_rows, "test", "seed")
    assert len(short_tasks()) == 82


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_every_word_of_a_world_is_in_its_vocabulary(world):
    tokenizer = word_tokenizer(world.make.words)
    taught = lessons(tokenizer, world.make, world.rows(20, 0), random.Random(0), skill=0.5)
    assert not any(tokenizer.unk_token_id in ids for ids, _ in taught)
    assert max(sum(own) for _, own in taught) <= world.tokens


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_imperfect_play_leaves_something_to_learn(world):
    assert 0.1 < world.expected_accuracy < 0.6
