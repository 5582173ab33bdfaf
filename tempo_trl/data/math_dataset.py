r"""MATH (https://huggingface.co/papers/2103.03874): 7,500 competition problems to train on and 5,000 to test on.

https://huggingface.co/datasets/DigitalLearningGmbH/MATH-lighteval, one row of the train split:

    problem   Solve for $x$: $\dfrac{1}{2} + \dfrac{1}{x} = \dfrac{5}{6}$.
    level     Level 1
    solution  Subtracting $\frac12$ from both sides gives $\frac1x = \frac56-\frac12 = \frac13$, so taking the
              reciprocal of both sides gives $x = \boxed{3}$.
    type      Algebra
"""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tempo_trl.rewards.boxed import gold_answer

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

MATH_HUB_ID = "DigitalLearningGmbH/MATH-lighteval"
MATH_COLUMNS = ("problem", "level", "solution", "type")
# Qwen2.5-Math's and Qwen3's own wording.
INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."

_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}


def load_math(
    split: str = "train",
    path: str | os.PathLike | None = None,
    system_prompt: str | None = None,
    instruction: str = INSTRUCTION,
) -> "Dataset":
    r"""MATH as a prompt dataset for TRL, to be rewarded with [`~tempo_trl.rewards.math_reward`].

    A row whose solution has no answer is kept, so that row ids agree with the Hub's, and named in a warning: its
    reward is None.

    Args:
        split: Split on the Hub, `train` or `test`; slices such as `train[:100]` count from their own start.
        path: A local JSON, JSONL or parquet file with the same columns, read instead of the Hub's `split`.
        system_prompt: First message of each prompt; none if None.
        instruction: Closes the user's message. It has to ask for a box: the reward reads nothing else.

    Returns:
        Dataset with `prompt` (messages), `solution` (text with a `\boxed{}`), `source` (`math`), `row_id` (int, index
        of the row in what was loaded), `level` and `type`.

    Raises:
        ValueError: `path` has another ending, or columns are missing.
        FileNotFoundError: `path` does not exist.
    """
    rows = _load_rows(split, path)
    _require_columns(rows.column_names)
    _warn_of_unanswered(rows["solution"])
    return rows.map(
        math_prompt,
        with_indices=True,
        fn_kwargs={"system_prompt": system_prompt, "instruction": instruction},
        remove_columns=rows.column_names,
    )


def math_prompt(row: dict, row_id: int, system_prompt: str | None = None, instruction: str = INSTRUCTION) -> dict:
    """Row of MATH as a row for TRL: the columns that [`load_math`] returns, and the meaning of its arguments."""
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return {
        "prompt": [*system, {"role": "user", "content": f"{row['problem']}\n{instruction}"}],
        "solution": row["solution"],
        "source": "math",
        "row_id": row_id,
        "level": row["level"],
        "type": row["type"],
    }


def _load_rows(split: str, path: str | os.PathLike | None) -> "Dataset":
    from datasets import load_dataset  # costs a second; the command line's help must not wait for it

    if path is None:
        return load_dataset(MATH_HUB_ID, split=split)
    builder = _BUILDERS.get(Path(path).suffix)
    if builder is None:
        raise ValueError(f"path ends in {Path(path).suffix!r}, expected one of {', '.join(_BUILDERS)}: convert {path}")
    return load_dataset(builder, data_files=os.fspath(path), split="train")  # a lone file is always called train


def _require_columns(columns: list[str]) -> None:
    missing = [name for name in MATH_COLUMNS if name not in columns]
    if missing:
        raise ValueError(
            f"MATH rows lack {', '.join(missing)}: got columns {', '.join(columns)}, "
            f"expected {', '.join(MATH_COLUMNS)}. Rename the file's columns, or load {MATH_HUB_ID}."
        )


def _warn_of_unanswered(solutions: list[str]) -> None:
    row_ids = [row_id for row_id, solution in enumerate(solutions) if not gold_answer(solution)]
    if row_ids:
        logger.warning(
            "%d rows of MATH have no answer in their solution and earn no reward: %s", len(row_ids), row_ids
        )
