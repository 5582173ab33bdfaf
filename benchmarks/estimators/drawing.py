"""What the figures share: colours of Okabe and Ito, error bars, and names at the ends of lines."""

import matplotlib

matplotlib.use("Agg")

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, AMBER, BLACK, GREY = "#56B4E9", "#E69F00", "#222222", "#888888"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK)
GAIN = "GRPO's error / this one's, at equal tokens"

Pair = tuple[float, float]


def sheet(
    title: str, panels: Sequence[str], size: tuple[float, float] = (10, 4.4), **options
) -> tuple[Figure, list[Axes]]:
    """A figure with a row of titled panels."""
    figure = Figure(figsize=size)
    axes = figure.subplots(1, len(panels), squeeze=False, **options)[0]
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", fontweight="bold")
    for panel, text in zip(axes, panels, strict=True):
        panel.set_title(text, fontsize=9, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    figure.subplots_adjust(left=0.08, right=0.94, top=0.84, bottom=0.17, wspace=0.32)
    return figure, list(axes)


def spans(pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """Ratios and the lengths of their bars of two standard errors, which are factors, `(2, n)`."""
    values, errors = np.array(pairs, dtype=float).T
    factor = np.exp(2 * errors / values)
    return values, np.stack([values - values / factor, values * factor - values])


def bars(axes: Axes, x: Sequence[float], pairs: Sequence[Pair], colour: str, **options) -> None:
    """A line through (figure, standard error) pairs with bars of two standard errors."""
    values, lengths = spans(pairs)
    style = {"marker": "o", "markersize": 4, "linewidth": 1.5, "capsize": 2} | options
    axes.errorbar(x, values, lengths, color=colour, **style)


def name_ends(axes: Axes, ends: dict[str, tuple[float, str]], least: float = 0.055) -> None:
    """Names beside the last points of lines, (height, colour) by name, far enough apart to be read."""
    to_axes = axes.transData + axes.transAxes.inverted()
    height = -1.0
    for name, (value, colour) in sorted(ends.items(), key=lambda end: end[1][0]):
        height = max(to_axes.transform((axes.get_xlim()[1], value))[1], height + least)
        axes.annotate(name, (1.01, height), xycoords="axes fraction", color=colour, fontsize=8, va="center")


def gains(axes: Axes, ticks: Sequence[float], along: str = "y") -> None:
    """A logarithmic axis of gains with a line where both are level."""
    axis = axes.yaxis if along == "y" else axes.xaxis
    (axes.set_yscale if along == "y" else axes.set_xscale)("log", base=2)
    (axes.axhline if along == "y" else axes.axvline)(1, color=GREY, linewidth=1, linestyle="--", zorder=0)
    axis.set_ticks(list(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def named(axes: Axes, x: str, y: str = "") -> None:
    axes.set_xlabel(x, fontsize=8.5)
    axes.set_ylabel(y, fontsize=8.5)
