"""The cells of the comparison: each method's results on each task, and their paired difference from the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tempo_trl.compare import paper
from tempo_trl.compare.questions import numbers_by_question
from tempo_trl.runs.compared_runs import ComparedRun
from tempo_trl.runs.results import DECODING, Result
from tempo_trl.runs.statistics import bootstrap_interval, paired_difference

BASELINE = "grpo"
ROUNDING = 5e-4  # maximum difference of a rounded value from the mean of its questions


@dataclass
class Cell:
    """
    A method's result on a task, and its difference from the baseline's.

    Args:
        model, method: Of the runs.
        dataset: What they were trained on, if the paper did not train this column on it; else None.
        task, metric: What was measured; see [`measure`].
        value, interval: Fraction of 1, the mean over the runs; its 95% interval over questions, or None.
        runs: Folder, seed and value of each run.
        results: Their results.
        numbers: The mean over the runs for each question, or None without saved answers.
        paper: The paper's value as a fraction of 1, or None.
        baseline: GRPO, or the method of the first run; None for the baseline, and if it has no such cell.
        difference: From the baseline: the mean over common questions, or the difference of the two values.
        paired_interval, paired_questions, left_out: 95% over common questions, their number, the others of both.
        paper_difference: The paper's difference.
    """

    model: str | None
    method: str
    dataset: str | None
    task: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    runs: list[dict]
    results: list[Result] = field(repr=False)
    numbers: pd.Series | None = field(repr=False)
    paper: float | None
    baseline: str | None = None
    difference: float | None = None
    paired_interval: list[float] | None = None
    paired_questions: int | None = None
    left_out: list[int] | None = None
    paper_difference: float | None = None

    @property
    def row(self) -> tuple[str | None, str, str | None]:
        """Its row in a printed table."""
        return self.model, self.method, self.dataset

    @property
    def name(self) -> str:
        return f"{self.method} on {self.task} ({self.metric})"


def measure(result: Result) -> str:
    """The metric, with the number of answers that a chance such as pass@4 was computed from: only equals compare."""
    return f"{result.metric} of {result.k}" if result.metric.startswith("pass@") else result.metric


def compare_results(runs: Sequence[ComparedRun], notes: list[str]) -> list[Cell]:
    """
    A cell per model, method, training data, task and metric; rows and columns in the paper's order, others follow in
    the order of the runs. Warnings for the reader are appended to `notes`.
    """
    found: dict[tuple, list[tuple[ComparedRun, Result]]] = {}
    for run in runs:
        # Of two evaluations of a task the one with more questions.
        own = {(result.task, measure(result)): result for result in sorted(run.results, key=lambda one: one.n)}
        for (task, metric), result in own.items():
            dataset = None if run.trained_on in (None, paper.TRAINED_ON.get(task)) else run.trained_on
            found.setdefault((run.model, run.method, dataset, task, metric), []).append((run, result))
    cells = {key: _cell(key, measured, notes) for key, measured in found.items()}
    for (model, method, *column), cell in cells.items():
        methods = [other.method for other in cells.values() if other.model == model]
        against = next(name for name in (BASELINE, runs[0].method, *methods) if name in methods)
        if method != against and (model, against, *column) in cells:
            _compare(cell, cells[model, against, *column], notes)
    order = list(paper.METHODS), list(paper.TASKS)

    def place(cell: Cell) -> list[int]:
        names = (cell.method, cell.task)
        return [own.index(name) if name in own else len(own) for name, own in zip(names, order, strict=True)]

    return sorted(cells.values(), key=place)


def _cell(key: tuple, measured: list[tuple[ComparedRun, Result]], notes: list[str]) -> Cell:
    """A cell from the results of some runs, one each."""
    model, method, dataset, task, metric = key
    runs, results = map(list, zip(*measured, strict=True))
    numbers = _mean_by_question(runs, results, notes)
    interval = results[0].interval if len(results) == 1 else None
    if interval is None and numbers is not None:
        interval = bootstrap_interval(numbers.to_numpy())
    percent = None if dataset or metric != "accuracy" else paper.table_1(model, method, task)
    entries = [{"folder": run.folder, "seed": run.seed, "value": own.value} for run, own in measured]
    value = float(np.mean([result.value for result in results]))
    cell = Cell(*key, value, interval, entries, results, numbers, None if percent is None else percent / 100)
    for run, result in measured[1:]:
        pair = f"{runs[0].folder} and {run.folder} count as runs of {cell.name}"
        if odd := _differing(results[:1], [result]):
            notes.append(f"{pair}, but were evaluated differently: {odd}.")
        if run.trained_on != runs[0].trained_on:
            notes.append(f"{pair}, but it is not known what one of them was trained on. Use --label.")
    return cell


def _differing(a: Sequence[Result], b: Sequence[Result]) -> str:
    """How two measurements differ, such as `temperature 1.0 and 0.7`. Settings unknown for one are left out."""
    found = []
    for name in ("n", *DECODING, "thinking"):
        ours, theirs = (sorted({getattr(one, name) for one in own} - {None}) for own in (a, b))
        if ours and theirs and ours != theirs:
            found.append(f"{name} {', '.join(map(str, ours))} and {', '.join(map(str, theirs))}")
    return "; ".join(found)


def _mean_by_question(runs: list[ComparedRun], results: list[Result], notes: list[str]) -> pd.Series | None:
    """Mean over the runs on the questions that all of them have; None without answers, or without such questions."""
    per_run = [numbers_by_question(run.folder, result) for run, result in zip(runs, results, strict=True)]
    for run, result, numbers in zip(runs, results, per_run, strict=True):
        if numbers is not None and abs(numbers.mean() - result.value) > ROUNDING:
            of_answers = f"but the mean over its answers is {numbers.mean():.4f}"
            notes.append(f"{run.folder}: {result.task} {result.metric} is {result.value:.4f}, {of_answers}.")
    if any(numbers is None for numbers in per_run):
        return None
    common = pd.concat(per_run, axis=1, join="inner").mean(axis=1)
    if len(common) < max(map(len, per_run)):
        name = f"{runs[0].method} on {results[0].task}"
        notes.append(f"{name}: only the {len(common)} questions that all of its runs have are compared.")
    return common if len(common) else None


def _compare(cell: Cell, baseline: Cell, notes: list[str]) -> None:
    """Fill in a cell's difference from the baseline's: paired over questions, or of the two values."""
    names = f"{cell.method} and {baseline.name}"
    if odd := _differing(cell.results, baseline.results):
        notes.append(f"{names} were evaluated differently: {odd}.")
    cell.baseline, cell.difference = baseline.method, cell.value - baseline.value
    if cell.paper is not None and baseline.paper is not None:
        cell.paper_difference = cell.paper - baseline.paper
    if cell.numbers is None or baseline.numbers is None:
        return
    pairs = pd.concat([cell.numbers, baseline.numbers], axis=1, join="inner")
    if pairs.empty:
        notes.append(
            f"{names} have no questions in common (row, source and hash of the prompt), so their difference has no "
            "interval and means little. Evaluate both with the same rows and the same prompts."
        )
        return
    cell.left_out = [len(own.numbers) - len(pairs) for own in (cell, baseline)]
    if any(cell.left_out):
        notes.append(
            f"{names}: the difference is taken over the {len(pairs)} questions that both have. {cell.left_out[0]} and "
            f"{cell.left_out[1]} questions of the two are left out: only one has them, or with another prompt."
        )
    cell.difference, *cell.paired_interval = paired_difference(*pairs.to_numpy().T)
    cell.paired_questions = len(pairs)
