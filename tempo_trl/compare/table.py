"""The frame of the comparison: each method's results on each task, and their difference from the baseline."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from tempo_trl.compare import paper
from tempo_trl.compare.decodings import differing, preferred
from tempo_trl.compare.questions import numbers_by_question
from tempo_trl.runs.compared_runs import ComparedRun, groups
from tempo_trl.runs.results import Result
from tempo_trl.runs.statistics import bootstrap_interval, paired_difference

BASELINE = "grpo"
PAPER_TRAINED_ON = set(paper.TRAINED_ON.values())
ROUNDING = 5e-4  # maximum difference of a rounded value from the mean of its questions
OF_RUN = ["folder", "method", "model", "trained_on", "seed"]
CELL = ["model", "method", "dataset", "task", "metric"]
OF_CELL = ["model", "method", "trained_on", "task", "metric", "value", "interval", "questions", "runs", "paper"]
OF_CELL += ["minus_paper"]
OF_DIFFERENCE = ["baseline", "difference", "paired_interval", "paired_questions", "left_out", "paper_difference"]


def compare_results(runs: Sequence[ComparedRun], notes: list[str]) -> pd.DataFrame:
    """
    One row per model, method, task and metric. Warnings for the reader are appended to `notes`.

    | column | meaning |
    |---|---|
    | `model`, `method`, `dataset` | row of a printed table; the dataset if the paper did not train on it, or None |
    | `task`, `metric`, `trained_on` | task and metric, and the task or dataset of the training |
    | `value`, `interval` | fraction of 1, the mean over the runs; 95% over questions, or None |
    | `questions` | number of questions |
    | `runs` | folder, seed and value of each run |
    | `paper`, `minus_paper` | the paper's value as a fraction of 1, and the difference from it, or None |
    | `results` | the frame of the runs' results, from [`read_results`] |
    | `numbers` | the mean over the runs for each question, or None without saved answers |
    | `baseline` | GRPO, or the method of the first run; None for the baseline, and if it has no such row |
    | `difference` | from the baseline: the mean over common questions, or the difference of the two values |
    | `paired_interval`, `paired_questions`, `left_out` | 95% over common questions, their number, the others |
    | `paper_difference` | the paper's difference |

    Rows and columns have the paper's order; others follow in the order of the runs.
    """
    results = _comparable(read_results(runs), notes)
    baselines = {own.model.iloc[0]: _baseline(own.method, runs[0].method) for _, own in _by(results, "model")}
    chosen = preferred(results, baselines)
    rows = [_cell(own[own.index.isin(chosen)], notes) for _, own in _by(results, *CELL)]
    rows.sort(key=lambda row: (_position(row["method"], paper.METHODS), _position(row["task"], paper.TASKS)))
    found = {tuple(row[name] for name in CELL): row for row in rows}
    for row in rows:
        baseline = found.get(tuple((row | {"method": baselines[row["model"]]})[name] for name in CELL))
        is_compared = baseline is not None and baseline is not row
        row |= dict.fromkeys(OF_DIFFERENCE) | (_difference(row, baseline, notes) if is_compared else {})
    return pd.DataFrame(rows, columns=[*OF_CELL, "dataset", "results", "numbers", *OF_DIFFERENCE], dtype=object)


def read_results(runs: Sequence[ComparedRun]) -> pd.DataFrame:
    """One row per result of the runs: the fields of [`~tempo_trl.runs.results.Result`] and of its run."""
    rows = [
        vars(result)
        | {name: getattr(run, name) for name in OF_RUN}
        | {"dataset": None if run.trained_on in PAPER_TRAINED_ON else run.trained_on}
        for own in groups(runs).values()
        for run in own
        for result in run.results
    ]
    columns = dict.fromkeys([*OF_RUN, "dataset", *Result.__dataclass_fields__])
    return pd.DataFrame(rows, columns=list(columns), dtype=object)


def _by(frame: pd.DataFrame, *columns: str):
    return frame.groupby(list(columns), sort=False, dropna=False)


def _comparable(results: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The results without those of runs trained for another column of the paper, and without ambiguous ones."""
    kept = {}
    for _, own in _by(results, *CELL, "trained_on"):
        cell, folders = own.iloc[0], ", ".join(map(str, own.folder.unique()))
        name = f"{cell.method} on {cell.task}"
        other = kept.get(tuple(cell[CELL]))
        if cell.trained_on in PAPER_TRAINED_ON and paper.TRAINED_ON.get(cell.task, cell.trained_on) != cell.trained_on:
            notes.append(f"{name} is left out: it was trained on {cell.trained_on}, unlike that column of the paper.")
        elif other is not None:
            notes.append(
                f"{name}: the result of {folders} is left out, since {' and '.join(map(str, other.folder.unique()))} "
                "has one, too, and it is unknown whether they are seeds of the same training. Use --label."
            )
        else:
            kept[tuple(cell[CELL])] = own
    return pd.concat(kept.values()) if kept else results.iloc[:0]


def _position(name: str, names: Collection[str]) -> int:
    return list(names).index(name) if name in names else len(names)


def _baseline(methods: pd.Series, first: str) -> str:
    of_paper = [method for method in paper.METHODS if method in set(methods)]
    return next(method for method in (BASELINE, first, *of_paper, *methods) if method in set(methods))


def _cell(results: pd.DataFrame, notes: list[str]) -> dict:
    """A row of the frame from the results of some runs, one result each."""
    cell = results.iloc[0]
    notes += [
        f"{cell.folder} and {results.folder.iloc[i]} count as runs of {cell.method}, but were evaluated differently "
        f"on {cell.task} ({cell.metric}): {'; '.join(odd)}."
        for i in range(1, len(results))
        if (odd := differing(results[:1], results[i : i + 1]))
    ]
    numbers = _mean_by_question(results, notes)
    interval = cell.interval if len(results) == 1 else None
    if interval is None and numbers is not None:
        interval = bootstrap_interval(numbers.to_numpy())
    percent = None if cell.dataset or cell.metric != "accuracy" else paper.table_1(cell.model, cell.method, cell.task)
    value, of_paper = float(np.mean(results.value)), None if percent is None else percent / 100
    return {
        **cell[[*CELL, "trained_on"]],
        "value": value,
        "interval": interval,
        "questions": max(results.n),
        "runs": results[["folder", "seed", "value"]].to_dict("records"),
        "paper": of_paper,
        "minus_paper": None if of_paper is None else value - of_paper,
        "results": results,
        "numbers": numbers,
    }


def _mean_by_question(results: pd.DataFrame, notes: list[str]) -> pd.Series | None:
    """Mean over the runs on the questions that all of them have; None without answers, or without such questions."""
    per_run = [numbers_by_question(run.folder, run) for run in results.itertuples()]
    for run, numbers in zip(results.itertuples(), per_run, strict=True):
        if numbers is not None and abs(numbers.mean() - run.value) > ROUNDING:
            of_answers = f"but the mean over its answers is {numbers.mean():.4f}"
            notes.append(f"{run.folder}: {run.task} {run.metric} is {run.value:.4f}, {of_answers}.")
    if any(numbers is None for numbers in per_run):
        return None
    common = pd.concat(per_run, axis=1, join="inner").mean(axis=1)
    if len(common) < max(map(len, per_run)):
        cell = results.iloc[0]
        notes.append(
            f"{cell.method} on {cell.task}: only the {len(common)} questions that all of its runs have are compared."
        )
    return common if len(common) else None


def _difference(cell: dict, baseline: dict, notes: list[str]) -> dict:
    """The difference of a row from the baseline's: paired over questions, or of the two values."""
    names = f"{cell['method']} and {baseline['method']} on {cell['task']} ({cell['metric']})"
    if odd := differing(cell["results"], baseline["results"]):
        notes.append(f"{names} were evaluated differently: {'; '.join(odd)}.")
    both = [row["paper"] for row in (cell, baseline)]
    found = {
        "baseline": baseline["method"],
        "difference": cell["value"] - baseline["value"],
        "paper_difference": None if None in both else both[0] - both[1],
    }
    numbers = [row["numbers"] for row in (cell, baseline)]
    if any(each is None for each in numbers):
        return found
    pairs = pd.concat(numbers, axis=1, join="inner")
    if pairs.empty:
        notes.append(
            f"{names} have no questions in common (row, source and hash of the prompt), so their difference has no "
            "interval and means little. Evaluate both with the same rows and the same prompts."
        )
        return found
    left_out = [len(each) - len(pairs) for each in numbers]
    if any(left_out):
        notes.append(
            f"{names}: the difference is taken over the {len(pairs)} questions that both have. {left_out[0]} and "
            f"{left_out[1]} questions of the two are left out: only one has them, or with another prompt."
        )
    difference, *interval = paired_difference(*pairs.to_numpy().T)
    paired = {"paired_interval": interval, "paired_questions": len(pairs), "left_out": left_out}
    return found | {"difference": difference} | paired
