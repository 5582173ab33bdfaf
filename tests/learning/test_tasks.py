"""The truth of the two tasks: who is right, and how often the starts succeed."""

import random

import numpy as np
import pytest

from benchmarks.learning import plan
from benchmarks.learning.chain import Chain
from benchmarks.learning.plan import Plan, first_failure, successful
from benchmarks.learning.policy import CHARACTERS
from benchmarks.learning.starts import PROMPT_ROOM, rewards
from tempo_trl.demo.task import worked_solution

TASKS = [Chain(), Plan()]


def solutions(task, n, seed=0):
    rng = random.Random(seed)
    problems = task.draw(n, rng, "train")
    return problems, [task.start_solution(problem, rng) for problem in problems]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_solution_has_the_stated_length_in_the_demonstrations_characters(task):
    problems, texts = solutions(task, 50)
    assert {len(text) for text in texts} == {task.tokens - 1}  # and EOS
    assert set("".join(problems + texts)) <= {*CHARACTERS}
    assert len({len(problem) for problem in problems}) == 1
    assert len(problems[0]) <= PROMPT_ROOM


def test_the_worked_solution_is_paid_and_one_more_is_not():
    problems = Chain().draw(30, random.Random(1), "train")
    right = [worked_solution(problem) for problem in problems]
    assert rewards(Chain(), problems, right) == [1.0] * 30
    wrong = [text[:-1] + str((int(text[-1]) + 1) % 10) for text in right]
    assert rewards(Chain(), problems, wrong) == [0.0] * 30


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_starts_success_probability_has_its_closed_form(task):
    """4,000 draws: a standard error of at most 0.008."""
    problems, texts = solutions(task, 4000)
    assert np.mean(rewards(task, problems, texts)) == pytest.approx(task.expected_accuracy, abs=0.03)


@pytest.mark.parametrize("task", [Chain(), Plan()], ids=lambda task: task.name)
def test_train_and_test_never_meet_and_do_not_depend_on_who_asks(task):
    train, test = (task.rows(500, seed=0, split=split) for split in ("train", "test"))
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in test}
    assert test == task.rows(500, seed=0, split="test")
    assert test != task.rows(500, seed=1, split="test")


def test_a_completion_is_paid_if_no_step_has_worse_luck_than_its_plan_bears(monkeypatch):
    problem, digits = "512345?", "0123456789"
    by_step = dict.fromkeys(range(1, 11), 0.2) | {4: 0.1}
    monkeypatch.setattr(plan, "luck", lambda problem, step, digit: by_step[step])
    assert successful([problem] * 2, [f"-{digits}#", f"+{digits}#"]) == [1.0, 0.0]  # 0.1 is below 0.15, above 0.025
    assert first_failure(problem, f"+{digits}#") == 4
    assert first_failure(problem, f"-{digits}#") is None
    by_step[7] = 0.01
    assert successful([problem], [f"-{digits}#"]) == [0.0]
