"""Grades of answers that are judged by several criteria: right if all of them are met."""

from tempo_trl.data import load_prompts
from tempo_trl.evaluation.grading import grade


def test_an_answer_is_right_if_it_meets_every_criterion():
    for row in load_prompts("orders", "test[:6]").to_list():
        wrong = row["solution"].replace('"express": ', '"expres": ')
        assert grade(row, [row["solution"], wrong, ""]) == [1.0, 0.0, 0.0]
