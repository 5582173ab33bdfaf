"""`tempo-trl compare RUN_A RUN_B ...`: the paper's Table 1 with your values in it, and learning curves.

All data come from the runs' folders: `evaluation/` ([`tempo_trl.runs.results`]), the answers to each question
([`~tempo_trl.compare.questions`]), Trainer's log and the record of the run. Missing values are "not run". The output
folder gets compare.md, compare.json (all numbers, as fractions of 1) and curves as PNG.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from tempo_trl.compare import paper
from tempo_trl.compare.curves import MethodCurve, method_curves, speeds
from tempo_trl.compare.draw import draw
from tempo_trl.compare.show import markdown, rich_table, sheets, speed_sentence
from tempo_trl.compare.table import OF_CELL, OF_RUN, compare_results
from tempo_trl.runs.compared_runs import ComparedRun, mismatches, read_runs
from tempo_trl.version import __version__

# Columns of the differences in compare.json, some with other names.
OF_PAIR = ["model", "method", "baseline", "trained_on", "task", "metric", "difference"]
RENAMED = {
    "paired_interval": "interval",
    "paired_questions": "questions",
    "left_out": "questions_left_out",
    "paper_difference": "paper",
}


def main(runs: Sequence[str], output: str, label: Sequence[str] | None = None) -> int:
    """Compare runs, print and write the comparison. Returns 2 if a run cannot be read or the output not be written."""
    try:
        compare(runs, Path(output), label, Console())
    except (ValueError, OSError) as error:
        print(f"tempo-trl compare: error: {error}", file=sys.stderr)
        return 2
    return 0


def compare(folders: Sequence[str | Path], output: Path, labels: Sequence[str] | None, console: Console) -> dict:
    """
    Compare runs, and return the content of compare.json.

    Raises:
        ValueError: from [`~tempo_trl.runs.compared_runs.read_runs`] or
            [`~tempo_trl.compare.questions.numbers_by_question`], or if `output` cannot be created.
        OSError: a file cannot be read or written.
    """
    runs = read_runs(folders, labels)
    notes = mismatches(runs)
    table, curves = compare_results(runs, notes), method_curves(runs)
    faster = speeds(curves)
    numbers = _numbers(runs, table, curves, faster, notes)

    _make_folder(output)
    pictures = [path.name for path in draw(curves, output)]
    printed, sentences = sheets(table, curves), list(map(speed_sentence, faster))
    sentences = sentences or ["No speed comparison: no two methods have learning curves on the same task."]
    for sheet in printed:
        console.print(rich_table(sheet))
    for line in (*sentences, *(f"Note: {note}" for note in notes)):
        console.print(line, highlight=False, markup=False)
    text = _page(list(map(markdown, printed)), sentences, notes, pictures)
    (output / "compare.md").write_text(text, encoding="utf-8")
    (output / "compare.json").write_text(json.dumps(numbers, indent=2, allow_nan=False), encoding="utf-8")
    written = ", ".join(["compare.md", "compare.json", *pictures])
    console.print(f"\nWritten to {output}: {written}", highlight=False, markup=False, soft_wrap=True)
    return numbers


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot create the folder {output}: {error.strerror!r}. Give another folder with --output."
        ) from error


def _page(tables: list[str], sentences: list[str], notes: list[str], pictures: list[str]) -> str:
    parts = ["# Comparison", "", *tables, "## Speed", "", *(f"- {sentence}" for sentence in sentences), ""]
    parts += [f"![Learning curves against steps, tokens and time]({name})" for name in pictures]
    return "\n".join([*parts, *(["", "## Notes", "", *(f"- {note}" for note in notes)] if notes else [])]) + "\n"


def _numbers(
    runs: list[ComparedRun], table: pd.DataFrame, curves: list[MethodCurve], faster: list[dict], notes: list[str]
) -> dict:
    differences = table.loc[table.baseline.notna(), [*OF_PAIR, *RENAMED]]
    return _plain(
        {
            "tempo_trl": __version__,
            "paper": {"source": paper.SOURCE, "table_1": _table_1()},
            "runs": [{name: getattr(run, name) for name in OF_RUN} for run in runs],
            "cells": table[OF_CELL].to_dict("records"),
            "differences": differences.rename(columns=RENAMED).to_dict("records"),
            "curves": [curve.numbers for curve in curves],
            "speed": faster,
            "notes": notes,
        }
    )


def _table_1() -> dict:
    return {
        model: {method: dict(zip(paper.TASKS, values, strict=True)) for method, values in methods.items()}
        for model, methods in paper.TABLE_1.items()
    }


def _plain(value):
    """`value` for JSON, with null instead of NaN."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
