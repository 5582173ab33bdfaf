"""Grades of answers that are judged by several criteria: right if all of them are met."""

import pytest

from tempo_trl.data import load_prompts
from tempo_trl.evaluation.grading import grade, truth_of

ONE_CHANGE = {
    "orders": ('"express": ', '"expres": '),
}


@pytest.mark.parametrize("name", ONE_CHANGE)
def test_an_answer_is_right_if_it_meets_every_criterion(name):
    rows = load_prompts(name, "test[:6]").to_list()
    answers = [[row["solution"], row["solution"].replace(*ONE_CHANGE[name], 1), ""] for row in rows]
    assert grade(rows, answers).correct == [[1.0, 0.0, 0.0]] * 6


@pytest.mark.parametrize(("name", "columns"), [("orders", {"truth"})])
def test_what_a_grade_depends_on_has_the_columns_of_the_reward(name, columns):
    (row,) = load_prompts(name, "test[:1]").to_list()
    assert truth_of(row).keys() == {"gold", *columns}
