"""The figures: curves with bands, a number against a knob, and arms side by side.

Labels stand where the lines end.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image  # comes with matplotlib

from benchmarks.learning.arms import Study
from benchmarks.learning.results import Measured, Result

# Okabe and Ito's colours, told apart by all eyes; arms that share one differ in the line.
STYLES = {
    "grpo": ("#000000", "-"),
    "grpo, rate 1e-3": ("#000000", "--"),
    "tempo": ("#0072B2", "-"),
    "prefix_baseline": ("#009E73", "-"),
    "hepo": ("#CC79A7", "-"),
    "grpo_lambda": ("#E69F00", "-"),
    "ppo": ("#7F7F7F", "-"),
    "treerpo": ("#D55E00", "-"),
    "treerpo_entropy": ("#D55E00", "--"),
    "tempo, entropy trees": ("#56B4E9", "--"),
    "tempo, fixed trees": ("#56B4E9", "-"),
    "gigpo": ("#E69F00", "-"),
    "hgpo": ("#CC79A7", "-"),
}
BLUE, GREY = "#0072B2", "#7F7F7F"
DPI = 110


def draw(study: Study, results: Sequence[Result], path: Path, caption: str) -> None:
    """The study's figure as a PNG file; `caption` says how it came about."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = {"curves": curves, "levels": levels, "dots": dots}[study.figure](results)
    figure.suptitle(f"{study.title} ({seeds(results)})", fontsize=11)
    save(figure, path, caption)


def save(figure: Figure, path: Path, caption: str) -> None:
    """The figure over its caption, as a PNG file of at most 128 colours, which is a third of the size."""
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=6.5, color="#555555")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI)
    Image.open(buffer).convert("RGB").quantize(128).save(path, optimize=True)


def seeds(results: Sequence[Result]) -> str:
    """How many seeds a figure has, for its title."""
    n = len(results[0].curves)
    return f"interquartile mean of {n} seeds, 95% bootstrap bands" if n > 1 else "one seed"


def curves(results: Sequence[Result]) -> Figure:
    """Accuracy by tokens and by seconds."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    for axes, unit in zip(figure.subplots(1, 2, sharey=True), ("tokens", "seconds"), strict=True):
        _lines(axes, results, unit)
    return figure


def _lines(axes: Axes, results: Sequence[Result], unit: str) -> None:
    scale, words = (1e3, "thousand generated tokens") if unit == "tokens" else (1, "seconds of training")
    ends = []
    for result in results:
        band = result.by_tokens() if unit == "tokens" else result.by_seconds()
        numbers = np.array(band[unit]) / scale, band["iqm"], band["low"], band["high"]
        ends.append(band_line(axes, result.arm.label, STYLES[result.arm.label], *numbers))
    axes.set_xlabel(words)
    axes.set_ylabel("accuracy, sampled" if axes.get_subplotspec().is_first_col() else "")
    finish(axes)
    name_lines(axes, ends)


End = tuple[float, float, str, str]  # where a line ends, its label and its colour


def band_line(axes: Axes, label: str, style: tuple[str, str], x, middle, low, high) -> End:
    """A line with its band."""
    colour, line = style
    axes.plot(x, middle, line, color=colour, lw=1.6)
    axes.fill_between(x, low, high, color=colour, alpha=0.1, lw=0)
    return x[-1], middle[-1], label, colour


def name_lines(axes: Axes, ends: Sequence[End]) -> None:
    """Labels beside the lines' ends, moved apart where they would lie on each other."""
    low, high = axes.get_ylim()
    right = max(x for x, *_ in ends)
    room = 0.045 * (high - low) * 4.8 / axes.figure.get_figheight() * axes.get_gridspec().nrows
    heights = np.array(spread([y for _, y, *_ in ends], room))
    heights -= max(0.0, heights.max() - high)
    heights += max(0.0, low + room / 2 - heights.min())
    for (x, y, label, colour), height in zip(ends, heights, strict=True):
        axes.annotate(
            label,
            (x, y),
            (1.03 * right, height),
            color=colour,
            fontsize=8,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1},
        )
    axes.set_xlim(0, 1.32 * right)


def spread(heights: Sequence[float], room: float) -> list[float]:
    """`heights` in their order, moved as little as a pass up needs to be `room` apart, and centred as before."""
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, dtype=float)[order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + room)
    placed += np.mean(heights) - placed.mean()
    back = np.empty_like(placed)
    back[order] = placed
    return back.tolist()


def levels(results: Sequence[Result]) -> Figure:
    """A number a panel against the knob: accuracy at the end, and on average over the budget."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = list(dict.fromkeys(result.arm.panel for result in results))
    for axes, name in zip(figure.subplots(1, 2), ("final", "mean"), strict=True):
        labels, ends = list(dict.fromkeys(result.arm.label for result in results)), []
        for i, label in enumerate(labels):
            own = [getattr(result, name) for result in results if result.arm.label == label]
            at = np.arange(len(panels)) + 0.08 * (i - (len(labels) - 1) / 2)
            points(axes, at, own, STYLES[label][0])
            ends.append((at[-1], own[-1].iqm, label, STYLES[label][0]))
        axes.set_xticks(range(len(panels)), panels)
        axes.set_ylabel(_WORDS[name])
        finish(axes)
        name_lines(axes, ends)
        axes.set_xlim(left=-0.4)
    return figure


_WORDS = {"final": "accuracy when the budget is spent", "mean": "mean accuracy over the budget"}


def points(axes: Axes, at: np.ndarray, own: Sequence[Measured], colour: str) -> None:
    """Numbers with their intervals, joined by a line."""
    axes.errorbar(at, [m.iqm for m in own], yerr=_errors(own), fmt="o-", color=colour, capsize=3, lw=1.2, ms=4)


def _errors(own: Sequence[Measured]) -> np.ndarray:
    ends = np.array([[m.iqm - m.low, m.high - m.iqm] for m in own]).T
    return np.nan_to_num(np.clip(ends, 0, None))


def dots(results: Sequence[Result]) -> Figure:
    """A row an arm: accuracy at the end, and on average over the budget; the baseline's interval as a stripe."""
    figure = Figure(figsize=(9, 1.6 + 0.32 * len(results)), layout="constrained")
    rows = np.arange(len(results))
    for axes, name in zip(figure.subplots(1, 2, sharey=True), ("final", "mean"), strict=True):
        own = [getattr(result, name) for result in results]
        axes.errorbar([m.iqm for m in own], rows, xerr=_errors(own), fmt="o", color=BLUE, capsize=3, ms=4)
        if not np.isnan(own[0].low):
            axes.axvspan(own[0].low, own[0].high, color=GREY, alpha=0.15, lw=0)
        axes.set_yticks(rows, [result.arm.label for result in results])
        axes.set_xlabel(_WORDS[name])
        finish(axes)
    axes.invert_yaxis()
    return figure


def finish(axes: Axes) -> None:
    """A faint grid and two spines."""
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
