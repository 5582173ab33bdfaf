r"""MATH (https://huggingface.co/papers/2103.03874): 7,500 competition problems for training and 5,000 for testing.

https://huggingface.co/datasets/DigitalLearningGmbH/MATH-lighteval, one row of the train split:

    problem   Solve for $x$: $\dfrac{1}{2} + \dfrac{1}{x} = \dfrac{5}{6}$.
    level     Level 1
    solution  Subtracting $\frac12$ from both sides gives $\frac1x = \frac56-\frac12 = \frac13$, so taking the
              reciprocal of both sides gives $x = \boxed{3}$.
    type      Algebra

The TEMPO paper tests on all 5,000 problems, not on MATH-500. Two of the training problems are among them:
[`~tempo_trl.data.leaks.leaked_rows`] finds them.
"""

import os
from typing import TYPE_CHECKING

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import answer_text, text
from tempo_trl.data.loading import load, prompt_row
from tempo_trl.data.prompts import STYLES

if TYPE_CHECKING:
    from datasets import Dataset

MATH_HUB_ID = "DigitalLearningGmbH/MATH-lighteval"
MATH_COLUMNS = ("problem", "level", "solution", "type")
INSTRUCTION = STYLES["boxed"]["math"].instruction


def to_row(row: dict, row_id: int) -> dict:
    """A problem with its worked solution, whose last box is the answer; `level` and `type` come along."""
    return {
        "row_id": row_id,
        "question": text(row, "problem"),
        "solution": answer_text(row, "solution"),
        "level": row["level"],
        "type": row["type"],
    }


MATH = Benchmark(
    name="math",
    hub_id=MATH_HUB_ID,
    splits=("train", "test"),
    eval_split="test",
    columns=MATH_COLUMNS,
    domain="math",
    to_row=to_row,
    train_split="train",
)


def load_math(
    split: str = "train",
    path: str | os.PathLike | None = None,
    system_prompt: str | None = None,
    instruction: str = INSTRUCTION,
) -> "Dataset":
    r"""Load MATH as a prompt dataset for TRL, for [`~tempo_trl.rewards.math_reward`].

    Like [`~tempo_trl.data.load_prompts`] for `math`, with the train split by default.

    Returns:
        Dataset with `prompt` (messages), `solution` (text with a `\boxed{}`), `source` (`math`), `row_id` (int, index
        of the row in the loaded data), `level` and `type`.
    """
    return load(MATH, split, path, system_prompt, instruction)


def math_prompt(row: dict, row_id: int, system_prompt: str | None = None, instruction: str = INSTRUCTION) -> dict:
    """Convert a row of MATH to a row for TRL, with the columns and the arguments of [`load_math`]."""
    return prompt_row(row, row_id, MATH, system_prompt=system_prompt, instruction=instruction)
