"""The cells of the comparison: what each method has on each task, and how far it is from the baseline."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from tempo_trl.compare import paper
from tempo_trl.compare.decodings import differing, preference
from tempo_trl.compare.questions import Difference, Numbers, difference, mean_over_runs, numbers_by_question
from tempo_trl.runs.compared_runs import ComparedRun, groups
from tempo_trl.runs.results import Result
from tempo_trl.runs.statistics import bootstrap_interval

BASELINE = "grpo"
PAPER_TRAINED_ON = set(paper.TRAINED_ON.values())
ROUNDING = 5e-4  # what a rounded value may differ from the mean of its questions


@dataclass(frozen=True)
class Cell:
    """
    What the runs of one method have on one task by one metric.

    Args:
        row: (model, method, dataset that the paper did not train on, or None).
        value, interval: Fraction of 1, the mean over the runs; 95% over questions, None if nothing tells.
        questions: How many were asked.
        runs: (folder, seed, value) of each.
        results: What each measured, in the same order.
        numbers: The mean over the runs question by question, None if they left no answers.
    """

    row: tuple[str | None, str, str | None]
    trained_on: str | None
    task: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    questions: int
    runs: list[tuple[str, int | None, float]]
    results: list[Result] = field(repr=False)
    numbers: Numbers | None = field(repr=False, default=None)

    @property
    def paper(self) -> float | None:
        """The paper's value as a fraction of 1; None if it has none, or for another metric than the accuracy."""
        model, method, dataset = self.row
        of_table = None if dataset or self.metric != "accuracy" else paper.table_1(model, method, self.task)
        return None if of_table is None else of_table / 100


@dataclass(frozen=True)
class Gap:
    """A method less the baseline on one task: paired over questions (`paired`), or of the two values alone."""

    cell: Cell
    baseline: Cell
    paired: Difference | None

    @property
    def value(self) -> float:
        return self.paired.difference if self.paired else self.cell.value - self.baseline.value

    @property
    def paper(self) -> float | None:
        ours, theirs = self.cell.paper, self.baseline.paper
        return None if ours is None or theirs is None else ours - theirs


def cells(runs: Sequence[ComparedRun], notes: list[str]) -> list[Cell]:
    """All cells of the runs; what a reader has to know of them is appended to `notes`."""
    found: dict[tuple, Cell] = {}
    for (model, trained_on, method), own in groups(runs).items():
        row = (model, method, _other_dataset(trained_on))
        for task, metric in dict.fromkeys((r.task, r.metric) for run in own for r in run.results):
            if trained_on in PAPER_TRAINED_ON and paper.TRAINED_ON.get(task, trained_on) != trained_on:
                notes.append(f"{method} on {task} is left out: it was trained on {trained_on}, unlike that column.")
            elif (row, task, metric) in found:
                others = " and ".join(folder for folder, _, _ in found[row, task, metric].runs)
                notes.append(
                    f"{method} on {task}: that of {', '.join(str(run.folder) for run in own)} is left out, since "
                    f"{others} has it and nothing tells whether they were trained alike. Tell them apart with --label."
                )
            else:
                measured = _measured(own, runs, task, metric)
                found[row, task, metric] = _cell(row, trained_on, task, metric, measured, notes)
    return sorted(found.values(), key=_place)


def _other_dataset(trained_on: str | None) -> str | None:
    """Dataset that the paper did not train on: rows of one model are compared where they have the same."""
    return None if trained_on in PAPER_TRAINED_ON else trained_on


def _place(cell: Cell) -> tuple[int, int]:
    """Order of the paper's rows, then of its columns; what it does not have comes after, in the order of the runs."""
    return _position(cell.row[1], paper.METHODS), _position(cell.task, paper.TASKS)


def _position(name: str, names: Collection[str]) -> int:
    return list(names).index(name) if name in names else len(names)


def _measured(
    own: list[ComparedRun], runs: Sequence[ComparedRun], task: str, metric: str
) -> list[tuple[ComparedRun, Result]]:
    """The result of each of `own` that has one: of a decoding that those have, too, with which it is compared."""
    row = (own[0].model, _other_dataset(own[0].trained_on))
    peers = [run for run in runs if (run.model, _other_dataset(run.trained_on)) == row]
    methods = [run.method for run in runs if run.model == own[0].model and run.results]
    baseline = _baseline(sorted(methods, key=lambda method: _position(method, paper.METHODS)), runs[0].method)
    order = preference(peers, baseline, task, metric)
    return [(run, max(results, key=order)) for run in own if (results := run.measured(task, metric))]


def _cell(
    row: tuple, trained_on: str | None, task: str, metric: str, measured: list[tuple[ComparedRun, Result]], notes: list
) -> Cell:
    results = [result for _, result in measured]
    for run, result in measured[1:]:
        if odd := differing(results[:1], [result]):
            notes.append(
                f"{measured[0][0].folder} and {run.folder} count as runs of {row[1]}, but were not measured alike on "
                f"{task} ({metric}): {'; '.join(odd)}."
            )
    per_run = [numbers_by_question(run.folder, result) for run, result in measured]
    for (run, result), numbers in zip(measured, per_run, strict=True):
        if numbers and abs(np.mean(list(numbers.values())) - result.value) > ROUNDING:
            mean = np.mean(list(numbers.values()))
            notes.append(f"{run.folder}: {task} {metric} is {result.value:.4f}, the mean of its answers {mean:.4f}.")
    numbers = mean_over_runs(per_run) if all(per_run) else None
    if numbers is not None and len(numbers) < max(len(one) for one in per_run):
        notes.append(f"{row[1]} on {task}: its runs have {len(numbers)} questions in common, which are compared.")
    interval = measured[0][1].interval if len(measured) == 1 else None
    if interval is None and numbers:
        interval = bootstrap_interval(np.array(list(numbers.values())))
    values = [(str(run.folder), run.seed, result.value) for run, result in measured]
    mean = float(np.mean([value for _, _, value in values]))
    return Cell(row, trained_on, task, metric, mean, interval, max(r.n for r in results), values, results, numbers)


def gaps(found: Sequence[Cell], first: str, notes: list[str]) -> list[Gap]:
    """Each cell less that of the baseline by the same model, task and metric: GRPO, or the method of the first run."""
    result = []
    models = dict.fromkeys(cell.row[0] for cell in found)
    baselines = {model: _baseline([cell.row[1] for cell in found if cell.row[0] == model], first) for model in models}
    of = {(cell.row, cell.task, cell.metric): cell for cell in found}
    for cell in found:
        model, method, dataset = cell.row
        baseline = of.get(((model, baselines[model], dataset), cell.task, cell.metric))
        if baseline and method != baselines[model]:
            result.append(_gap(cell, baseline, notes))
    return result


def _baseline(methods: list[str], first: str) -> str:
    return next(method for method in (BASELINE, first, *methods) if method in methods)


def _gap(cell: Cell, baseline: Cell, notes: list[str]) -> Gap:
    names = f"{cell.row[1]} and {baseline.row[1]} on {cell.task} ({cell.metric})"
    if odd := differing(cell.results, baseline.results):
        notes.append(f"{names} were not measured alike: {'; '.join(odd)}.")
    if not (cell.numbers and baseline.numbers):
        return Gap(cell, baseline, None)
    paired = difference(cell.numbers, baseline.numbers)
    if paired is None:
        notes.append(
            f"{names} have no question in common (row, source and hash of the prompt): their difference has no "
            "interval, and says little. Evaluate both with the same rows and the same prompts."
        )
    elif any(paired.left_out):
        notes.append(
            f"{names}: the difference is over the {paired.questions} questions that both have; {paired.left_out[0]} "
            f"and {paired.left_out[1]} others were asked in other words, or of one alone."
        )
    return Gap(cell, baseline, paired)
