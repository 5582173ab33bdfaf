"""Comparison of all methods: accuracy at an equal number of sampled tokens, with its spread over seeds."""

import json
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tempo_trl.demo.recipe import TINY_TASKS, UPDATES_PER_GENERATION, TinyTask
from tempo_trl.demo.results import accuracy_curve, difference
from tempo_trl.methods import METHODS
from tempo_trl.runs.curves import Curve
from tempo_trl.version import __version__

BASELINE = "grpo"


def show_methods(runs: list, folder: Path, console: Console, task: TinyTask = TINY_TASKS["sums"]) -> None:
    """Print the table of methods and write its numbers to methods.json in `folder`."""
    methods = list(dict.fromkeys(run.method for run in runs))
    curves = {m: [accuracy_curve(run.folder, task.rows) for run in runs if run.method == m] for m in methods}
    budget = min(curve.tokens[-1] for own in curves.values() for curve in own)
    rows = {method: [curve.at(budget) for curve in own] for method, own in curves.items()}
    console.print(method_table(rows, budget, task.held_out))
    _write(curves, rows, budget, folder / "methods.json")
    console.print(f"Numbers: {folder / 'methods.json'}", highlight=False, soft_wrap=True)


def method_table(rows: dict[str, list[Curve]], budget: float, held_out: int) -> Table:
    """One row per method, at `budget` sampled tokens: mean and range over seeds, and the paired difference."""
    seeds = len(next(iter(rows.values())))
    table = Table(
        title=f"Accuracy in percent after {budget / 1000:,.0f} thousand sampled tokens, {held_out} problems",
        caption=f"means and ranges over {seeds} seed(s); paired differences with 95% intervals",
        box=SIMPLE_HEAD,
    )
    for heading in ("method", "accuracy", "range", f"- {METHODS[BASELINE].label}", "generations", "time"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for method, own in rows.items():
        table.add_row(
            METHODS[method].label if method in METHODS else method, *_cells(own, rows.get(BASELINE), held_out)
        )
    return table


def _cells(own: list[Curve], baseline: list[Curve] | None, held_out: int) -> tuple[str, ...]:
    final = [curve.value[-1] for curve in own]
    versus = ""
    if baseline is not None and own is not baseline:
        mean, _, high = (100 * number for number in difference(own, baseline, held_out))
        versus = f"{mean:+.1f} ± {high - mean:.1f}"
    steps, seconds = (np.mean([getattr(curve, clock)[-1] for curve in own]) for clock in ("steps", "seconds"))
    spread = f"{100 * min(final):.1f} to {100 * max(final):.1f}"
    return f"{100 * np.mean(final):.1f}", spread, versus, f"{steps / UPDATES_PER_GENERATION:.1f}", f"{seconds:.0f} s"


def _write(curves: dict[str, list[Curve]], rows: dict[str, list[Curve]], budget: float, path: Path) -> None:
    """Write all numbers of the table as JSON."""
    runs = [
        {
            "method": method,
            "seed": seed,
            "tokens": curve.tokens.tolist(),
            "accuracy": curve.value.tolist(),
            "seconds": curve.seconds.tolist(),
            "accuracy_at_budget": float(at.value[-1]),
        }
        for method, own in curves.items()
        for seed, (curve, at) in enumerate(zip(own, rows[method], strict=True))  # runs of a method are ordered by seed
    ]
    numbers = {"tempo_trl": __version__, "sampled_tokens": float(budget), "runs": runs}
    path.write_text(json.dumps(numbers, indent=2))
