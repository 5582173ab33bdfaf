"""The rooms as a world, and the template in which their policy speaks with it."""

import random

import pytest

from benchmarks.agents.warm_start import played
from benchmarks.tasks import recipe_of, rooms
from benchmarks.tasks.rooms import TURNS, Rooms, draw_tasks, state_text
from tempo_trl.launch import train
from tempo_trl.runs.log import training_log

TASKS = draw_tasks(40, random.Random(0))


@pytest.mark.parametrize("task", TASKS[:10])
def test_the_best_play_wins_by_a_shortest_path(task):
    environment = Rooms(0)
    played(environment, task, random.Random(0), skill=1.0)
    doors = rooms.distance(task["start"], task["key"]) + rooms.distance(task["key"], task["goal"])
    assert environment.won
    assert environment._turn == doors + 1 <= TURNS  # the call that picks the key up


def test_the_exit_pays_only_with_the_key_and_in_time():
    task = {"start": 0, "key": 1, "goal": 3}

    def won(*directions):
        environment = Rooms(0)
        environment.reset(**task)
        for direction in directions:
            environment.take() if direction == "take" else environment.go(direction)
        return environment.won

    key_to_exit = ("west", "south")
    assert won("east", "take", *key_to_exit)
    assert not won("south")
    assert not won("take", "south")  # there is no key in the first room
    assert won(*["north"] * (TURNS - 4), "east", "take", *key_to_exit)
    assert not won(*["north"] * (TURNS - 3), "east", "take", *key_to_exit)


def answers(row, task, calls=5):
    environment = Rooms(row)
    return [environment.reset(**task), *(environment.go("north") for _ in range(calls))]


def test_what_is_seen_depends_on_task_row_and_turn_alone():
    task = TASKS[0]
    assert answers(3, task) == answers(3, task)
    assert answers(3, task)[0] == answers(4, task)[0]  # the prompts of a group are equal
    assert answers(3, task)[1:] != answers(4, task)[1:]
    assert answers(3, task)[1:] != answers(3, task | {"seed": 99})[1:]


def test_the_state_is_in_the_answer_and_nothing_else_is_after_the_noise_is_removed():
    states = {}
    for number, task in enumerate(TASKS):
        environment = Rooms(number)
        environment.reset(**task)
        for _ in range(TURNS):
            name, arguments = random.Random(number).choice(environment._calls())
            text = state_text(getattr(environment, name)(**arguments))
            assert text == environment._state()
            states.setdefault(environment._state_key(), set()).add(text)
    assert all(len(texts) == 1 for texts in states.values())


def test_the_splits_share_no_task():
    def tasks(split):
        return {(row["start"], row["key"], row["goal"]) for row in draw_tasks(3000, random.Random(1), split)}

    assert not tasks("train") & tasks("test")
    assert 60 < len(tasks("test")) < 140
    with pytest.raises(ValueError, match=r"split is 'dev', expected one of \('train', 'test'\)"):
        draw_tasks(1, random.Random(0), "dev")


@pytest.mark.matrix
@pytest.mark.parametrize("method", ["hgpo", "grpo"])
def test_the_recipes_train_the_shipped_policy(method, tmp_path):
    small = {"max_steps": 2, "save_strategy": "no", "eval_strategy": "no", "eval_on_start": False}
    flags = [text for key, value in small.items() for text in (f"--{key}", str(value))]
    assert train.main(["--config", str(recipe_of("rooms", method)), *flags, "--output_dir", str(tmp_path)]) == 0
    log = training_log(tmp_path)
    assert [entry["step"] for entry in log if "step_time" in entry] == [1, 2]
    assert 0 < log[0]["reward"] < 1
