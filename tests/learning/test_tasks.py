"""The truth of the two tasks: who is right, and how often the starts succeed."""

import random

import numpy as np
import pytest

from benchmarks.learning import plan
from benchmarks.learning.chain import Chain
from benchmarks.learning.plan import Plan, first_failure, luck, right_plan, success_probability, successful
from benchmarks.learning.policy import CHARACTERS, load_policy
from benchmarks.learning.starts import PROMPT_ROOM, Start, rewards
from benchmarks.learning.warm_start import SLIP_RATE
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


def test_the_plan_is_the_first_digit_modulo_four():
    assert [right_plan(f"{digit}12345?") for digit in (0, 1, 2, 3, 4, 9)] == list("+-=;+-")


def test_luck_is_fixed_and_uniform():
    assert luck("012345?", 1, "7") == luck("012345?", 1, "7") != luck("012345?", 2, "7")
    drawn = [luck(f"{n:06d}?", step, digit) for n in range(40) for step in range(1, 11) for digit in "0123456789"]
    counts, _ = np.histogram(drawn, bins=10, range=(0, 1))
    assert np.abs(counts / 4000 - 0.1).max() < 0.02


def test_a_completion_is_paid_if_no_step_has_worse_luck_than_its_plan_bears(monkeypatch):
    problem, digits = "512345?", "0123456789"
    by_step = dict.fromkeys(range(1, 11), 0.2) | {4: 0.1}
    monkeypatch.setattr(plan, "luck", lambda problem, step, digit: by_step[step])
    assert successful([problem] * 2, [f"-{digits}#", f"+{digits}#"]) == [1.0, 0.0]  # 0.1 is below 0.15, above 0.025
    assert first_failure(problem, f"+{digits}#") == 4
    assert first_failure(problem, f"-{digits}#") is None
    by_step[7] = 0.01
    assert successful([problem], [f"-{digits}#"]) == [0.0]


@pytest.mark.parametrize("text", ["-012345678#", "-0123456789", "-0123456789##", "70123456789#", "-01234567890#", ""])
def test_what_is_not_well_formed_earns_nothing(text, monkeypatch):
    monkeypatch.setattr(plan, "luck", lambda *_: 0.99)
    assert successful(["512345?", "512345?"], [text, "-0123456789#"]) == [0.0, 1.0]


@pytest.mark.parametrize("digit", ["3", None])
def test_what_digits_a_policy_writes_does_not_change_its_success(digit):
    """The same digit everywhere, or any: the plan alone decides how often the dice are survived."""
    rng = random.Random(0)
    problems = Plan().draw(4000, rng, "train")
    texts = [right_plan(p) + "".join(digit or rng.choice("0123456789") for _ in range(10)) + "#" for p in problems]
    assert np.mean(successful(problems, texts)) == pytest.approx(success_probability(1.0), abs=0.03)


def test_the_base_chain_is_the_demonstration_s_task_and_starts_from_its_policy(tmp_path):
    assert Chain().slip_rate == SLIP_RATE
    start = Start(Chain(), tmp_path, 1)
    start.make()
    start.check()
    ours, shipped = (load_policy(folder)[0].state_dict() for folder in (tmp_path, None))
    assert all(ours[name].equal(weight) for name, weight in shipped.items())


def test_a_start_is_taught_mostly_right_plans_before_it_is_taught_its_own_share():
    rng = random.Random(0)
    problems = Plan().draw(1000, rng, "train")
    shares = [np.mean([Plan().start_solution(p, rng, at)[0] == right_plan(p) for p in problems]) for at in (0, 0.5)]
    assert shares == pytest.approx([0.9, 0.4], abs=0.05)
