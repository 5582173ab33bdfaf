"""The learning curves as PNG files: one per model and training task, with a row per metric and a column per clock."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tempo_trl.compare.curves import CLOCKS, METRICS, MethodCurve
from tempo_trl.methods import method_colours, method_label
from tempo_trl.runs.curves import Curve


def draw(curves: Sequence[MethodCurve], folder: Path) -> list[Path]:
    """Write `curves*.png` to `folder` and return their paths."""
    paths = []
    for model, task in dict.fromkeys((curve.model, curve.trained_on) for curve in curves):
        own = [curve for curve in curves if (curve.model, curve.trained_on) == (model, task)]
        name = "_".join(["curves", *(re.sub(r"[^\w.-]", "-", part) for part in (model, task) if part)])
        paths.append(folder / f"{name}.png")
        _figure(own, ", ".join(filter(None, (model, task)))).savefig(paths[-1], dpi=150)
    return paths


def _figure(curves: list[MethodCurve], title: str) -> Figure:
    metrics = [metric for metric in METRICS if any(curve.metric == metric for curve in curves)]
    figure = Figure(figsize=(12, 0.5 + 3.2 * len(metrics)), layout="constrained")
    rows = figure.subplots(len(metrics), len(CLOCKS), sharey="row", squeeze=False)
    colours = method_colours(curve.method for curve in curves)
    for metric, row in zip(metrics, rows, strict=True):
        for axes, clock in zip(row, CLOCKS, strict=True):
            for curve in (curve for curve in curves if curve.metric == metric):
                _draw_method(axes, curve, clock, colours[curve.method])
            axes.set_xlabel(CLOCKS[clock])
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(METRICS[metric])
        row[0].set_ylim(*_limits([run for curve in curves if curve.metric == metric for run in curve.runs]))
        row[0].legend(loc="lower right", frameon=False)
    figure.suptitle(f"{title}: bands are 95% intervals of the mean over runs" if title else "95% bands over runs")
    return figure


def _draw_method(axes, curve: MethodCurve, clock: str, colour: str) -> None:
    several = len(curve.runs) > 1
    for run in curve.runs:
        axes.plot(getattr(run, clock), run.value, color=colour, linewidth=0.7, alpha=0.4)
    label = method_label(curve.method) + (f", {len(curve.runs)} runs" if several else "")
    at, points = getattr(curve.mean, clock), {"marker": "."} if len(curve.mean.value) < 20 else {}
    axes.plot(at, curve.mean.value, color=colour, linewidth=2.0, label=label, **points)
    if several:
        axes.fill_between(at, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)


def _limits(runs: list[Curve]) -> tuple[float, float]:
    """The limits of the runs' values, not of the band, which for two runs is so wide that it would hide the curves."""
    values = np.concatenate([run.value for run in runs])
    margin = 0.08 * (np.ptp(values) or 1.0)
    return float(values.min() - margin), float(values.max() + margin)
