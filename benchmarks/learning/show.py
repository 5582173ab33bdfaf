"""Output of a study: tables for the terminal, and the JSON beside its figure."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import compact_json
from benchmarks.learning.arms import Study
from benchmarks.learning.experiment import Tried, at_edge, best_rate
from benchmarks.learning.results import DIGITS, LEVELS, UNITS, Result, as_json, baseline_of
from benchmarks.learning.statistics import Ratio
from benchmarks.provenance import commit, machine
from tempo_trl.runs.record import read_record


def print_results(study: Study, results: Sequence[Result], console: Console) -> None:
    """Two tables a panel: accuracy, difference to GRPO, learning rate and cost; times to accuracies over GRPO's."""
    for panel in dict.fromkeys(result.arm.panel for result in results):
        own = [result for result in results if result.arm.panel == panel]
        console.print(_table(study, own, panel))
        ratios = {result.arm.label: _ratios(result, own) for result in own}
        if any(by_unit["tokens"] for by_unit in ratios.values()):
            console.print(_ratio_table(ratios))


def _table(study: Study, results: Sequence[Result], panel: str) -> Table:
    seeds, tokens = len(results[0].curves), results[0].tokens
    table = Table(
        title=f"{study.title}{', ' if panel else ''}{panel}: {tokens / 1000:,.0f} thousand tokens, {seeds} seed(s)",
        caption="accuracy in percent, interquartile mean [95% bootstrap]",
        box=SIMPLE_HEAD,
    )
    _columns(table, ("", "final", "mean", "mean - grpo", "rate", "seconds", "CPU s"))
    for result in results:
        table.add_row(*_cells(result, results))
    return table


def _columns(table: Table, headings: Sequence[str]) -> None:
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")


def _ratio_table(ratios: dict[str, dict[str, dict[float, Ratio]]]) -> Table:
    """Of the ratios by label, unit and accuracy."""
    levels = [level for level in LEVELS if any(level in by_unit["tokens"] for by_unit in ratios.values())]
    table = Table(
        title="Tokens, then seconds, to an accuracy as a ratio to GRPO's",
        caption="paired by seed; > or < where runs never got there: (how many did, how many of GRPO's)",
        box=SIMPLE_HEAD,
    )
    _columns(table, ("", *(f"{unit} to {at:.0%}" for unit in UNITS for at in levels)))
    for label, by_unit in ratios.items():
        table.add_row(label, *(str(by_unit[unit].get(at, "")) for unit in UNITS for at in levels))
    return table


def _ratios(result: Result, results: Sequence[Result]) -> dict[str, dict[float, Ratio]]:
    baseline = baseline_of(result, results)
    return {unit: {} if baseline is result else result.ratios(baseline, unit) for unit in UNITS}


def _cells(result: Result, results: Sequence[Result]) -> tuple[str, ...]:
    baseline = baseline_of(result, results)
    over = "" if baseline is result else result.over(baseline).percent(signed=True)
    seconds, cpu = f"{result.seconds.iqm:.0f}", f"{np.mean(result.cpu_seconds):.0f}"
    means = result.final.percent(), result.mean.percent()
    return result.arm.label, *means, over, f"{result.learning_rate:g}", seconds, cpu


def print_sweep(tried: Sequence[Tried], console: Console) -> None:
    """Mean accuracy over the budget at each learning rate, on average over the sweep's seeds."""
    if not tried:
        return
    rates = sorted({one.learning_rate for one in tried})
    table = Table(title="Sweep of learning rates: mean accuracy over the budget, in percent", box=SIMPLE_HEAD)
    _columns(table, ("", *(f"{rate:g}" for rate in rates), "taken"))
    for label in dict.fromkeys(one.label for one in tried):
        means = {one.learning_rate: np.mean(one.mean_accuracy) for one in tried if one.label == label}
        edge = " (edge)" if at_edge(tried, label) else ""
        taken = f"{best_rate(tried, label):g}{edge}"
        table.add_row(label, *(f"{100 * means[rate]:.1f}" if rate in means else "" for rate in rates), taken)
    console.print(table)


def write_json(study: Study, results: Sequence[Result], tried: Sequence[Tried], origin: dict, path: Path) -> None:
    """All numbers of a study, and how they were made, their [`provenance`]."""
    numbers = {
        "study": study.name,
        "title": study.title,
        **origin,
        "starts": {result.runs[0].start.task.name: _start(result) for result in results},
        "sweep": [_tried(one, tried) for one in tried],
        "results": [as_json(one, baseline_of(one, results)) for one in results],
    }
    compact_json.write_json(path, numbers, DIGITS)


def provenance(results: Sequence[Result], command: str) -> dict:
    """Command, commits, seeds, machine."""
    runs = [run for result in results for run in result.runs]
    commits = {(read_record(run.folder).get("git") or {}).get("commit") for run in runs}
    return {
        "command": command,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": commit(),
        "commits_of_runs": sorted(commit for commit in commits if commit),
        "seeds": sorted({run.seed for run in runs}),
        "machine": machine(),
        "runs": len(runs),
    }


def _start(result: Result) -> dict:
    return json.loads((result.runs[0].start.folder / "start.json").read_text())


def _tried(one: Tried, tried: Sequence[Tried]) -> dict:
    taken = one.learning_rate == best_rate(tried, one.label)
    edge = taken and at_edge(tried, one.label)
    numbers = {"label": one.label, "learning_rate": one.learning_rate, "mean_accuracy": list(one.mean_accuracy)}
    return numbers | {"taken": taken, "at_edge": edge}
