"""The warning where most turns of a group are one state, because tools give the same answer in every situation."""

import warnings

import numpy as np
import pytest
import torch

from tempo_trl import AnchorBaselineTrainer, GiGPOTrainer, HGPOTrainer, TEMPOTrainer
from tempo_trl.credit.metrics import largest_state_sums

from . import credit_functions as functions
from .agents import DOORS, CountingRooms, KeyedRooms, QuietRooms, Rooms
from .test_agents import play

LONG = [(1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5), (4, 5, 6)]  # doors of each row of a group: 14 turns after the first


class KeyedQuietRooms(QuietRooms, KeyedRooms):
    pass


def said(model, folder, **options) -> tuple[list[str], dict]:
    """The warnings of a run of two batches about merged states, and its first log entry."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = play(model, folder, **{"doors": LONG, "max_steps": 2} | options)
    messages = [str(warning.message) for warning in caught]
    return [text for text in messages if "One state holds most turns" in text], trainer.state.log_history[0]


OWN = {"trainer": {"credit_func": functions.grpo}}


@pytest.mark.parametrize(
    "options",
    [
        OWN,
        {"cls": GiGPOTrainer},
        {"cls": HGPOTrainer},
        {"cls": AnchorBaselineTrainer},
        {"cls": TEMPOTrainer, "merge_states": True},
    ],
)
def test_an_answer_that_is_always_the_same_is_warned_of_once_with_numbers(options, tiny_model, tmp_path):
    texts, logged = said(tiny_model, tmp_path, world=QuietRooms, **options)
    assert len(texts) == 1
    assert "28 of 28 turns after the first (100%)" in texts[0]  # of two groups
    assert "such as 'ok'" in texts[0] and "`_state_key`" in texts[0] and "`observation_key_func`" in texts[0]
    assert logged["tempo/largest_state"] == 1


def test_it_is_the_state_of_turns_and_not_of_the_steps_within_them(tiny_model, tmp_path):
    assert said(tiny_model, tmp_path, world=QuietRooms, step_delimiter="e", **OWN)[1]["tempo/largest_state"] == 1


def test_a_function_that_drops_what_tells_states_apart_is_warned_of(tiny_model, tmp_path):
    keywords = OWN["trainer"] | {"observation_key_func": lambda text: text[:4]}
    texts, _ = said(tiny_model, tmp_path, world=CountingRooms, **OWN | {"trainer": keywords})
    assert len(texts) == 1 and "such as 'room " in texts[0]


@pytest.mark.parametrize(
    ("options", "share"),
    [
        (OWN | {"world": Rooms}, 7 / 14),  # two rooms by turns: half of the turns, and not more
        (OWN | {"world": QuietRooms, "doors": DOORS}, 1.0),  # 9 turns of 4 completions, too few to tell
        (OWN | {"world": QuietRooms, "num_generations": 2}, 1.0),
        (OWN | {"world": KeyedQuietRooms}, None),  # the environment gave its few states knowingly
        ({"cls": TEMPOTrainer, "world": QuietRooms}, 1.0),  # compares no states
    ],
)
def test_what_is_no_sign_of_merged_states_is_not_warned_of(options, share, tiny_model, tmp_path):
    texts, logged = said(tiny_model, tmp_path, **options)
    assert texts == []
    assert logged.get("tempo/largest_state") == (share and pytest.approx(share))


def test_the_share_is_its_definition():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3):
        states = torch.from_numpy(rng.integers(0, 4, (6, 5)))
        counted = torch.tensor([group != 1 for group in range(6 // size) for _ in range(size)])
        largest = total = 0
        for first in range(0, 6, size):
            later = [key for row in states[first : first + size] for key in row[1:].tolist() if key and counted[first]]
            largest, total = largest + max(map(later.count, later), default=0), total + len(later)
        assert largest_state_sums(states, size, counted) == {"largest_state": (largest, total)}
    assert largest_state_sums(torch.zeros(4, 0, dtype=torch.int64), 2, torch.ones(4, dtype=torch.bool)) == {
        "largest_state": (0, 0)
    }
