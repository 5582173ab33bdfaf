"""Gymnasium's Taxi in words: its rules and its transitions."""

import random

import pytest

pytest.importorskip("gymnasium")

from benchmarks.agents.taxi import Taxi, short_tasks, taxi_rows
from benchmarks.agents.warm_start import played
from benchmarks.tasks.rooms import state_text


def test_the_taxi_is_gymnasium_s():
    for row in taxi_rows(5, random.Random(0)):
        taxi = Taxi(0)
        messages = played(taxi, row, random.Random(0), skill=1.0)
        assert taxi.won
        assert state_text(messages[-2]["content"]).endswith("won")
        assert len(messages) <= 2 * 11 + 2


def test_the_splits_share_no_task():
    train, test = ({row["start"] for row in taxi_rows(500, random.Random(0), split)} for split in ("train", "test"))
    assert not train & test
    assert len(short_tasks()) == 82
