"""Grades and final answers of completions, with the reward functions of training."""

from typing import NamedTuple

from tempo_trl.data import BENCHMARKS
from tempo_trl.rewards import choice_reward, json_fields_reward, math_reward, tool_call_fields_reward
from tempo_trl.rewards.boxed import BoxRule, after_thinking, counted, gold_answer
from tempo_trl.rewards.boxed import boxes as boxes_of
from tempo_trl.rewards.choice_reward import chosen_letter

# The reward of each domain, and the columns that it reads.
GRADERS = {
    "math": (math_reward, ("solution",)),
    "choice": (choice_reward, ("solution", "options")),
    "json": (json_fields_reward, ("truth",)),
    "calls": (tool_call_fields_reward, ("calls",)),
}
# All of them, beside the right answer.
GRADED_BY = [name for _, columns in GRADERS.values() for name in columns if name != "solution"]
IN_BOXES = ("math", "choice")  # the others are shares of criteria: an answer is right if it meets all of them


class Grades(NamedTuple):
    """Final answers (empty if there is none) and grades (1.0, 0.0 or None) of Q questions with n completions each."""

    answers: list[list[str]]
    correct: list[list[float | None]]


def grade(rows: list[dict], completions: list[list[str]], boxes: BoxRule = "last") -> Grades:
    """Grade completions for rows of one benchmark; None if the row has no answer to compare with.

    Args:
        rows: Rows from [`~tempo_trl.data.load_prompts`].
        completions: Texts, n for each row.
        boxes: Which boxes are the answer, as in [`~tempo_trl.rewards.math_reward`]: the last, as in published figures,
            or all.
    """
    pairs = list(zip(rows, completions, strict=True))
    answers = [[_answer(row, text, boxes) for text in texts] for row, texts in pairs]
    return Grades(answers, [_grades(row, texts, boxes) for row, texts in pairs])


def gold_of(row: dict) -> str:
    """The right answer of a row without the rest of the solution; empty if there is none."""
    return gold_answer(row["solution"]) if _domain(row) == "math" else row["solution"]


def truth_of(row: dict) -> dict:
    """All that the grades of a row's answers depend on."""
    return {"gold": gold_of(row), **{name: row[name] for name in GRADED_BY if name in row}}


def _grades(row: dict, texts: list[str], boxes: BoxRule) -> list[float | None]:
    reward, columns = GRADERS[_domain(row)]
    given = {name: [row[name]] * len(texts) for name in columns}
    if _domain(row) in IN_BOXES:
        return reward(texts, boxes=boxes, **given)
    return [float(share == 1.0) for share in reward(texts, **given)]


def _domain(row: dict) -> str:
    return BENCHMARKS[row["source"]].domain


def _answer(row: dict, text: str, boxes: BoxRule) -> str:
    match _domain(row):
        case "math":
            return ", ".join(counted(boxes_of(after_thinking(text)), boxes))
        case "choice":
            return chosen_letter(text, row["options"], boxes)
    return after_thinking(text).strip()
