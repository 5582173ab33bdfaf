"""`tempo-trl compare RUN_A RUN_B ...`: the paper's Table 1 with ours in it, and learning curves.

Everything is read from the runs' folders: `evaluation/` ([`tempo_trl.runs.results`]), the answers question by
question ([`~tempo_trl.compare.questions`]), Trainer's log and the record of the run. What is missing is
"not run". compare.md, compare.json (every number, fractions of 1) and PNG curves go to the output folder.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tempo_trl.compare import paper
from tempo_trl.compare.curves import CLOCKS, Curve, MethodCurve, Speed, method_curves, speeds
from tempo_trl.compare.draw import draw
from tempo_trl.compare.show import markdown, rich_table, sheets, speed_sentence
from tempo_trl.compare.table import Cell, Gap, cells, gaps
from tempo_trl.runs.compared_runs import ComparedRun, doubts, read_runs
from tempo_trl.version import __version__


def main(runs: Sequence[str], output: str, label: Sequence[str] | None = None) -> int:
    """Compare runs, print and write the comparison; 2 where a run cannot be read, or the comparison not be written."""
    try:
        compare(runs, Path(output), label, Console())
    except (ValueError, OSError) as error:
        print(f"tempo-trl compare: error: {error}", file=sys.stderr)
        return 2
    return 0


def compare(folders: Sequence[str | Path], output: Path, labels: Sequence[str] | None, console: Console) -> dict:
    """
    Compare runs, and return what compare.json holds.

    Raises:
        ValueError: as [`~tempo_trl.runs.compared_runs.read_runs`] and
            [`~tempo_trl.compare.questions.numbers_by_question`]; or `output` can be no folder.
        OSError: a file that cannot be read or written.
    """
    runs = read_runs(folders, labels)
    notes = doubts(runs)
    found = cells(runs, notes)
    differences, curves = gaps(found, runs[0].method, notes), method_curves(runs)
    faster = speeds(curves)
    numbers = _numbers(runs, found, differences, curves, faster, notes)

    _make_folder(output)
    pictures = draw(curves, output)
    tables, sentences = sheets(found, differences, curves), [speed_sentence(speed) for speed in faster]
    sentences = sentences or ["No two methods have a learning curve of one task: nothing to say about speed."]
    for table in tables:
        console.print(rich_table(table))
    for line in (*sentences, *(f"Note: {note}" for note in notes)):
        console.print(line, highlight=False, markup=False)
    text = _page(list(map(markdown, tables)), sentences, notes, [path.name for path in pictures])
    (output / "compare.md").write_text(text, encoding="utf-8")
    (output / "compare.json").write_text(json.dumps(numbers, indent=2, allow_nan=False), encoding="utf-8")
    written = ", ".join(["compare.md", "compare.json", *(path.name for path in pictures)])
    console.print(f"\nWritten to {output}: {written}", highlight=False, markup=False)
    return numbers


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{output}: expected a folder to write to, or one that can be made, got {error.strerror!r}. Give another "
            "with --output."
        ) from error


def _page(tables: list[str], sentences: list[str], notes: list[str], pictures: list[str]) -> str:
    parts = ["# Comparison", "", *tables, "## Speed", "", *(f"- {sentence}" for sentence in sentences), ""]
    parts += [f"![Learning curves against steps, tokens and time]({name})" for name in pictures]
    return "\n".join([*parts, *(["", "## Notes", "", *(f"- {note}" for note in notes)] if notes else [])]) + "\n"


def _numbers(
    runs: list[ComparedRun],
    found: list[Cell],
    differences: list[Gap],
    curves: list[MethodCurve],
    faster: list[Speed],
    notes: list[str],
) -> dict:
    return _plain(
        {
            "tempo_trl": __version__,
            "paper": {"source": paper.SOURCE, "table_1": _table_1()},
            "runs": [
                {name: getattr(run, name) for name in ("folder", "method", "model", "trained_on", "seed")}
                for run in runs
            ],
            "cells": list(map(_cell, found)),
            "differences": list(map(_gap, differences)),
            "curves": list(map(_curve, curves)),
            "speed": list(map(_speed, faster)),
            "notes": notes,
        }
    )


def _table_1() -> dict:
    return {
        model: {method: dict(zip(paper.TASKS, values, strict=True)) for method, values in methods.items()}
        for model, methods in paper.TABLE_1.items()
    }


def _cell(cell: Cell) -> dict:
    return {
        "model": cell.row[0],
        "method": cell.row[1],
        "trained_on": cell.trained_on,
        "task": cell.task,
        "metric": cell.metric,
        "value": cell.value,
        "interval": cell.interval,
        "questions": cell.questions,
        "runs": [{"folder": folder, "seed": seed, "value": value} for folder, seed, value in cell.runs],
        "paper": cell.paper,
        "minus_paper": None if cell.paper is None else cell.value - cell.paper,
    }


def _gap(gap: Gap) -> dict:
    return {
        "model": gap.cell.row[0],
        "method": gap.cell.row[1],
        "baseline": gap.baseline.row[1],
        "trained_on": gap.cell.trained_on,
        "task": gap.cell.task,
        "metric": gap.cell.metric,
        "difference": gap.value,
        "interval": [gap.paired.low, gap.paired.high] if gap.paired else None,
        "questions": gap.paired.questions if gap.paired else None,
        "questions_left_out": gap.paired.left_out if gap.paired else None,
        "paper": gap.paper,
    }


def _points(curve: Curve) -> dict:
    return {name: getattr(curve, name).tolist() for name in (*CLOCKS, "value")}


def _curve(curve: MethodCurve) -> dict:
    setting = {name: getattr(curve, name) for name in ("model", "trained_on", "method", "metric")}
    band = {"low": curve.low.tolist(), "high": curve.high.tolist()}
    return setting | {"mean": _points(curve.mean) | band, "runs": [_points(run) for run in curve.runs]}


def _speed(speed: Speed) -> dict:
    setting = {name: getattr(speed.curve, name) for name in ("model", "trained_on", "method", "metric")}
    return setting | {
        "baseline": speed.against.method,
        "level": speed.level,
        "baseline_at": speed.baseline,
        "method_at": speed.method,
        "times_as_fast": {clock: speed.ratio(clock) for clock in CLOCKS},
    }


def _plain(value):
    """`value` as JSON has it: NaN, which it has not, is null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
