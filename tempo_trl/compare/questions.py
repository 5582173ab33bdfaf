"""The graded answers of a run to each question: `RUN/evaluation/{task}.greedy.jsonl` and `{task}.n16.jsonl`.

Each line is a question: {"task", "row_id", "source", "prompt_sha256", "gold", "completions", "answers", "correct"}.
Questions of two runs are the same if their row, source and hash of the prompt are equal.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

from tempo_trl.runs.results import Result, evaluation_folder
from tempo_trl.runs.statistics import avg_at_n, maj_at_n, pass_at_k


def numbers_by_question(folder: Path, result: Result) -> pd.Series | None:
    """
    The number of each question, whose mean is `result`; None if the run has no such file or the metric is unknown.

    The index is (row_id, source, prompt_sha256).

    Raises:
        ValueError: a line of the file is not a graded question, a question occurs twice, or the file is empty.
    """
    path = _answers_file(evaluation_folder(folder), result)
    if path is None:
        return None
    questions = _read(path)
    lengths = {len(correct) for _, correct in questions.values()}
    if len(lengths) != 1:
        raise ValueError(
            f"{path} has {sorted(lengths)} answers per question, expected equally many for all. Evaluate again."
        )
    answers = [answers for answers, _ in questions.values()]
    per_question = _numbers(result.metric, answers, np.array([correct for _, correct in questions.values()], float))
    return None if per_question is None else pd.Series(per_question, pd.Index(list(questions), tupleize_cols=False))


def _answers_file(folder: Path, result: Result) -> Path | None:
    """The file with the answers: greedy for accuracy, else sampled, with `k` (or the most) answers per question."""
    several = {
        int(match[1]): path
        for path in folder.glob(f"{result.task}.n*.jsonl")
        if (match := re.fullmatch(rf"{re.escape(result.task)}\.n(\d+)\.jsonl", path.name))
    }
    greedy = folder / f"{result.task}.greedy.jsonl"
    if "@" not in result.metric and result.k == 1:
        return greedy if greedy.is_file() else None
    n = int(result.metric.rpartition("@")[2]) if re.fullmatch(r"(avg|mean|maj)@\d+", result.metric) else result.k
    return several.get(n) or (several[max(several)] if several and result.metric.startswith("pass@") else None)


def _numbers(metric: str, answers: list[list[str]], correct: np.ndarray) -> np.ndarray | None:
    name, _, k = metric.partition("@")
    if name in ("accuracy", "avg", "mean"):
        return avg_at_n(correct)
    if name == "pass" and k.isdecimal() and int(k) <= correct.shape[1]:
        return pass_at_k(correct, int(k))
    return maj_at_n(answers, correct) if name == "maj" else None


def _read(path: Path) -> dict[tuple, tuple[list[str], list[float]]]:
    questions = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            key, graded = _question(line, f"{path}, line {number}")
            if key in questions:
                raise ValueError(f"{path}, line {number}: question {key[0]} of {key[1]} occurs twice. Evaluate again.")
            questions[key] = graded
    if not questions:
        raise ValueError(f"{path} is empty. Evaluate again, or remove it.")
    return questions


def _question(line: str, where: str) -> tuple[tuple, tuple[list[str], list[float]]]:
    try:
        row = json.loads(line)
        correct = [float("nan") if grade is None else float(grade) for grade in row["correct"]]
        answers = [answer or "" for answer in row.get("answers") or [""] * len(correct)]
        return (row["row_id"], row.get("source"), row["prompt_sha256"]), (answers, correct)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where} is not a graded question ({error!r}). Evaluate again, or remove the file."
        ) from error
