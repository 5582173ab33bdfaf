"""The figure of the runs that count: what the policy earns and writes along training, an arm a line."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.language_model.cells import Cells, smooth
from benchmarks.learning.figures import STYLES, band_line, finish, name_lines, save
from benchmarks.learning.statistics import interval, iqm
from benchmarks.provenance import caption

SHOWN = {
    "reward": "mean reward, of three steps",
    "length": "tokens of a completion",
    "entropy": "entropy of a token, nats",
}
WITH_CRITERIA = {
    "reward": "share of right criteria",
    "all": "share of answers with all right",
    "entropy": "entropy of a token, nats",
}
MORE_STYLES = {
    "grpo_lambda without trace": ("#E69F00", "--"),
    "span_credit": ("#D55E00", "-"),
    "gdpo": ("#CC79A7", "-"),
    "grpo on success": ("#000000", ":"),
    "gigpo on success": ("#E69F00", "-"),
    "hgpo on success": ("#E69F00", ":"),
    "lambda_grpo": ("#009E73", ":"),
    "tempo on trees": ("#0072B2", ":"),
    "span_credit lambda 1": ("#E69F00", "-"),
    "span_credit lambda 0.9": ("#E69F00", "--"),
}
Runs = dict[str, list[dict]]


def draw(cells: Cells, path: Path) -> bool:
    """Draw the arms that have runs of the most seeds, at least two, as a PNG file; False if there is none."""
    study, rates = cells.study, cells.rates()
    rows = {
        arm: [cells.of(study.cell(arm, rates[arm], seed)) for seed in study.seeds]
        for arm in study.arms
        if arm in rates
    }
    rows = {arm: [row for row in own if row] for arm, own in rows.items()}
    most = max(map(len, rows.values()), default=0)
    if most < 2:
        return False
    rows = {arm: own for arm, own in rows.items() if len(own) == most}  # no first looks, which would hide the others
    figure, statistics = _by_criteria(rows) if study.has_criteria else _of_instructions(rows)
    start = f", {study.start.name}" if study.start else ""
    figure.suptitle(f"SmolLM2-135M-Instruct on {study.task.replace('_', ' ')}{start} ({most} seeds, {statistics})")
    save(figure, path, caption(cells.provenance | {"command": study.command}))
    return True


def _of_instructions(rows: Runs) -> tuple[Figure, str]:
    figure = Figure(figsize=(13, 4), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(1, len(SHOWN)), SHOWN.items(), strict=True):
        _panel(axes, rows, name, label, _smoothed)
    return figure, "interquartile means, 95% bootstrap bands"


def _by_criteria(rows: Runs) -> tuple[Figure, str]:
    figure = Figure(figsize=(13, 4), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(1, len(WITH_CRITERIA)), WITH_CRITERIA.items(), strict=True):
        axes.margins(y=0.15)  # room for the names of lines that end together
        _panel(axes, rows, name, label, _median)
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
