"""Environments' own keys of states: which values they may have, which turns are asked, and errors on every rank."""

import numpy as np
import pytest

from .agents import AskedRooms, Rooms, rooms_of
from .credit_functions import Watching
from .recording import rolled_out
from .test_agents import play, watch


def keyed(key):
    """Rooms whose key is a function of the door that was opened last, None before the first."""

    class Keyed(Rooms):
        def reset(self, **columns):
            super().reset(**columns)
            self.door = None

        def _state_key(self):
            return key(self.door)

    return Keyed


async def awaited(door):
    return "a room"


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (
            lambda door: None,
            ValueError,
            "failed: .*must return a str or an int .*, got NoneType before turn 0 of row 0",
        ),
        (awaited, ValueError, "failed: .*must return a str or an int .*, got coroutine before turn 0"),
        (lambda door: (door,) if door == 3 else 0, ValueError, "failed: .*, got tuple before turn 1 of row 1"),
        (lambda door: {None: "start"}[door], RuntimeError, r"raised KeyError: 1 \(on rank 0\)"),
    ],
)
def test_a_key_that_does_not_identify_a_state_is_named_with_its_turn(key, error, message, tiny_model, tmp_path):
    with pytest.raises(error, match=f"`_state_key` {message}"):
        watch(tiny_model, tmp_path, world=keyed(key))


@pytest.mark.parametrize("budget", [400, 250])
def test_the_key_is_asked_once_before_each_turn_that_is_sampled_and_of_no_row_that_has_ended(
    budget, tiny_model, tmp_path
):
    """With the smaller budget, TRL drops an answer that leaves no room, and the row ends before its next turn."""
    trainer = play(
        tiny_model, tmp_path, world=AskedRooms, max_completion_length=budget, trainer={"credit_func": Watching()}
    )
    batch = trainer.credit_func.batches[0]
    turns = (batch.turns.amax(dim=1) + 1).tolist()
    scripts = [len(rooms_of(row % 4)) for row in range(8)]
    assert turns == scripts if budget == 400 else any(map(int.__lt__, turns, scripts))
    assert [environment.asked for environment in trainer.environments] == [list(range(count)) for count in turns]


def test_keys_are_equal_where_python_says_so(tiny_model, tmp_path):
    keys = {None: "start", 1: 1, 3: True, 5: "1", 4: np.bool_(True), 2: np.int64(1)}
    (batch,) = watch(tiny_model, tmp_path, world=keyed(keys.get))
    seen = {}
    for script, row in enumerate(batch.observations[:4]):
        for door, key in zip([None, *((1, 2, 3), (3, 4, 3), (5, 2), (1,))[script]], row, strict=False):
            seen.setdefault(door, set()).add(key.item())
    assert all(len(states) == 1 for states in seen.values())
    (one,) = seen[1]
    assert {door for door in seen if seen[door] == {one}} == {1, 3, 4, 2}
    assert len({*map(frozenset, seen.values())}) == 3


def test_a_rollout_func_that_plays_the_turns_is_not_asked_for_keys(tiny_model, tmp_path):
    """It may play turns in any order, so that no key could be told to belong to one."""
    asked = []

    def rollout(prompts, trainer):
        written, _ = trainer._generate_single_turn([[] for _ in prompts])
        return rolled_out([prompt[0]["content"] for prompt in prompts], trainer, written)

    (batch,) = watch(
        tiny_model, tmp_path, world=keyed(asked.append), doors=[()] * 4, trainer={"rollout_func": rollout}
    )
    assert not asked
    assert len(batch.lengths) == 8
