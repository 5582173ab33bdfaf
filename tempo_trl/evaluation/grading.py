"""Grades and final answers of completions, with the reward functions of training."""

from functools import partial

from tempo_trl.data import BENCHMARKS
from tempo_trl.rewards import choice_reward, json_fields_reward, math_reward, tool_call_fields_reward
from tempo_trl.rewards.boxed import after_thinking, boxes, gold_answer
from tempo_trl.rewards.choice_reward import chosen_letter

# The reward of each domain. Of several boxes the last is the answer, as in published figures.
GRADERS = {
    "math": partial(math_reward, boxes="last"),
    "choice": partial(choice_reward, boxes="last"),
    "json": json_fields_reward,
    "calls": tool_call_fields_reward,
}


def grade(row: dict, texts: list[str]) -> list[float | None]:
    """The grades of answers to a row of [`~tempo_trl.data.load_prompts`].

    1.0 for a right answer, which meets all criteria if there are several; 0.0 for another; None if the row has no
    answer to compare with.
    """
    columns = {name: [value] * len(texts) for name, value in row.items() if name != "prompt"}
    rewards = GRADERS[domain_of(row)](texts, **columns)
    return [None if reward is None else float(reward == 1.0) for reward in rewards]


def gold_of(row: dict) -> str:
    """The right answer of a row without the rest of the solution; empty if there is none."""
    return gold_answer(row["solution"]) if domain_of(row) == "math" else row["solution"]


def answer_of(row: dict, text: str) -> str:
    """The final answer in a text; empty if there is none."""
    match domain_of(row):
        case "math":
            return (boxes(after_thinking(text)) or [""])[-1]
        case "choice":
            return chosen_letter(text, row["options"], "last")
    return after_thinking(text).strip()


def domain_of(row: dict) -> str:
    """The domain of a row's benchmark."""
    return BENCHMARKS[row["source"]].domain
