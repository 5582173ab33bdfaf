"""The figure of the runs that count: what the policy earns and writes along training, an arm a line."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.language_model.arms import BASELINE
from benchmarks.language_model.cells import Cells, smooth
from benchmarks.learning.figures import STYLES, band_line, finish, name_lines, save
from benchmarks.learning.show import caption
from benchmarks.learning.statistics import interval, iqm

SHOWN = {
    "reward": "mean reward, of three steps",
    "length": "tokens of a completion",
    "entropy": "entropy of a token, nats",
    "distinct": "share of distinct words in a step",
}
WITH_CRITERIA = {
    "reward": "share of right criteria",
    "all": "share of answers with all right",
    "entropy": "entropy of a token, nats",
}
FIRST_ARMS = 6  # of the study of a task with criteria, which have panels of their own
MORE_STYLES = {
    "oracle": ("#7F7F7F", ":"),
    "grpo_lambda without trace": ("#E69F00", "--"),
    "kernel_baseline": ("#009E73", "--"),  # this one and the next three were measured, and are arms no more
    "hidden_baseline": ("#56B4E9", "-"),
    "hidden_td": ("#56B4E9", "--"),
    "shear": ("#CC79A7", "--"),
    "span_credit": ("#D55E00", "-"),
    "gdpo": ("#CC79A7", "-"),
    "span_credit lambda 1": ("#E69F00", "-"),
    "span_credit lambda 0.9": ("#E69F00", "--"),
    "span_credit one scale": ("#D55E00", "--"),
    "span_credit shuffled": ("#7F7F7F", "-"),
    "grpo all or nothing": ("#56B4E9", "-"),
    "grpo with floor": ("#000000", "--"),
    "prefix_baseline with floor": ("#009E73", ":"),
}
Runs = dict[str, list[dict]]


def draw(cells: Cells, path: Path) -> bool:
    """Draw the arms that have runs of at least two seeds, as a PNG file; False if there is none."""
    study, rates = cells.study, cells.rates()
    rows = {
        arm: [cells.of(study.cell(arm, rates[arm], seed)) for seed in study.seeds]
        for arm in cells.arms
        if arm in rates
    }
    rows = {arm: found for arm, own in rows.items() if len(found := [row for row in own if row]) > 1}
    if not rows:
        return False
    first = [*study.arms][:FIRST_ARMS]
    figure, statistics = _by_criteria(rows, first) if study.has_criteria else _of_instructions(rows)
    seeds = " or ".join(map(str, sorted({len(own) for own in rows.values()})))
    figure.suptitle(f"SmolLM2-135M-Instruct on {study.task.replace('_', ' ')} ({seeds} seeds, {statistics})")
    save(figure, path, caption(cells.provenance | {"command": study.command}))
    return True


def _of_instructions(rows: Runs) -> tuple[Figure, str]:
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(2, 2).flat, SHOWN.items(), strict=True):
        _panel(axes, rows, name, label, _smoothed)
    return figure, "interquartile means, 95% bootstrap bands"


def _by_criteria(rows: Runs, first: Sequence[str]) -> tuple[Figure, str]:
    """The arms that come first, and beside them the others with GRPO."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    beside = [arm for arm in rows if arm == BASELINE or arm not in first]
    columns = [own for own in ([arm for arm in rows if arm in first], beside) if set(own) - {BASELINE}] or [[*rows]]
    grid = figure.subplots(len(WITH_CRITERIA), len(columns), sharey="row", squeeze=False)
    for line, (name, label) in zip(grid, WITH_CRITERIA.items(), strict=True):
        for axes, arms in zip(line, columns, strict=True):
            is_first = axes.get_subplotspec().is_first_col()
            axes.margins(y=0.15)  # room for the names of lines that end together
            _panel(axes, {arm: rows[arm] for arm in arms}, name, label if is_first else "", _median)
    return figure, "medians and ranges"


def _panel(axes: Axes, rows: Runs, name: str, label: str, curve: Callable) -> None:
    styles = STYLES | MORE_STYLES
    ends = [
        band_line(axes, arm, styles[arm], *curve([row[name] for row in own]))
        for arm, own in rows.items()
        if all(row.get(name) for row in own)
    ]
    axes.set_xlabel("steps")
    axes.set_ylabel(label)
    finish(axes)
    if ends:
        name_lines(axes, ends)


def _smoothed(series: Sequence[list[float]]) -> tuple[np.ndarray, ...]:
    """Steps, interquartile means over three of them, and their interval over seeds."""
    series = np.array([smooth(own) for own in series])
    return np.arange(series.shape[1]) + 3, iqm(series), *interval(series)


def _median(series: Sequence[list[float]]) -> tuple[np.ndarray, ...]:
    """Steps, medians over seeds, and the least and the largest."""
    series = np.array(series, dtype=float)
    return np.arange(series.shape[1]) + 1, np.nanmedian(series, axis=0), np.nanmin(series, 0), np.nanmax(series, 0)
