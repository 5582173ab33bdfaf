"""`tempo-trl compare RUN_A RUN_B ...`: the paper's Table 1 with your values in it, and paired differences.

All data come from the runs' folders: `evaluation/` ([`tempo_trl.runs.results`]), the answers to each question
([`~tempo_trl.compare.questions`]), Trainer's log and the record of the run. Missing values are "not run". The output
folder gets compare.md and compare.json (all numbers, as fractions of 1).
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from tempo_trl.compare import paper
from tempo_trl.compare.show import REWARDS, markdown, rich_table, sheets
from tempo_trl.compare.table import Cell, compare_results
from tempo_trl.runs.compared_runs import ComparedRun, groups, mismatches, read_runs
from tempo_trl.runs.curves import Curve, read_curve
from tempo_trl.runs.statistics import student_interval
from tempo_trl.version import __version__

OF_RUN = ["folder", "method", "model", "trained_on", "seed"]
LATEST = 20  # a training reward at the end is the mean over the last 1/20 of the log: single batches are too noisy


def main(runs: Sequence[str], output: str, label: Sequence[str] | None = None) -> int:
    """
    Compare runs, print and write the comparison, return the exit status.

    Raises:
        ValueError: from [`~tempo_trl.runs.compared_runs.read_runs`] or
            [`~tempo_trl.compare.questions.numbers_by_question`], or if `output` cannot be created.
        OSError: a file cannot be read or written.
    """
    folder, console, compared = Path(output), Console(), read_runs(runs, label)
    notes = mismatches(compared)
    cells, ends = compare_results(compared, notes), trainings(compared)
    numbers = _plain(
        {
            "tempo_trl": __version__,
            "paper": paper.SOURCE,
            "runs": [{name: getattr(run, name) for name in OF_RUN} for run in compared],
            "cells": [_numbers(cell) for cell in cells],
            "training": ends,
            "notes": notes,
        }
    )
    _make_folder(folder)
    found = sheets(cells, ends)
    for sheet in found:
        console.print(rich_table(sheet))
    for note in notes:
        console.print(f"Note: {note}", highlight=False, markup=False)
    listed = ["## Notes", "", *(f"- {note}" for note in notes)] if notes else []
    text = ["# Comparison", "", *map(markdown, found), *listed]
    (folder / "compare.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    (folder / "compare.json").write_text(json.dumps(numbers, indent=2, allow_nan=False), encoding="utf-8")
    console.print(f"\nWritten to {folder}: compare.md, compare.json", highlight=False, markup=False, soft_wrap=True)
    return 0


def trainings(runs: Sequence[ComparedRun]) -> list[dict]:
    """The rewards with which the trainings of each method ended: means over its runs. Without a log there are none."""
    found = []
    for metric in REWARDS:
        for (model, trained_on, method), own in groups(runs).items():
            curves = [curve for run in own if (curve := read_curve(run.log, metric))]
            if curves:
                setting = {"model": model, "trained_on": trained_on, "method": method, "metric": metric}
                found.append(setting | _ends(curves, metric))
    return found


def _ends(curves: list[Curve], metric: str) -> dict:
    value, *interval = map(float, student_interval(np.array([_end(curve, metric) for curve in curves])))
    steps, seconds = (float(np.mean([getattr(own, clock)[-1] for own in curves])) for clock in ("steps", "seconds"))
    return {"value": value, "interval": interval, "runs": len(curves), "steps": steps, "seconds": seconds}


def _end(curve: Curve, metric: str) -> float:
    latest = max(1, len(curve.value) // LATEST) if metric == "reward" else 1
    return float(curve.value[-latest:].mean())


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot create the folder {output}: {error.strerror!r}. Give another folder with --output."
        ) from error


def _numbers(cell: Cell) -> dict:
    """The entry of a cell in compare.json."""
    return {name: value for name, value in vars(cell).items() if name not in ("results", "numbers")}


def _plain(value):
    """`value` for JSON, with null instead of NaN."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
