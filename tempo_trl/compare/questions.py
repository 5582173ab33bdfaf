"""The graded answers of a run to each question: `RUN/evaluation/{task}.greedy.jsonl` and `{task}.n16.jsonl`.

Each line is a question: {"task", "row_id", "source", "prompt_sha256", "gold", "completions", "answers", "correct"}.
Questions of two runs are the same if their row, source and hash of the prompt are equal.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from tempo_trl.runs.results import Result, evaluation_folder
from tempo_trl.runs.statistics import numbers_by_metric

KEY = ["row_id", "source", "prompt_sha256"]


def numbers_by_question(folder: Path, result: Result) -> pd.Series | None:
    """
    The number of each question, whose mean is `result`, by [`KEY`]; None if the run has no such file.

    Raises:
        ValueError: the file does not have a question a line, each once and with equally many answers.
    """
    kind = "greedy" if result.metric == "accuracy" and result.k == 1 else f"n{result.k}"
    path = evaluation_folder(folder) / f"{result.task}.{kind}.jsonl"
    if not path.is_file():
        return None
    try:
        rows = pd.read_json(path, lines=True, dtype=False, convert_dates=False)
        correct = np.array([[np.nan if grade is None else grade for grade in row] for row in rows["correct"]], float)
        index = pd.MultiIndex.from_frame(rows[KEY])
        if not index.is_unique:
            raise ValueError("a question occurs twice")
        return pd.Series(numbers_by_metric(kind, correct, rows["answers"].tolist())[result.metric], index)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not have a graded question a line ({error}). Evaluate again.") from error
