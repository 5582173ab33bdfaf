"""The picture of a report as PNG and SVG, for papers, model cards and trackers."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon

from tempo_trl.report.collect import RecordedRun, opening_group
from tempo_trl.report.folded_tree import FoldedNode
from tempo_trl.report.group import Group, is_right, reward_range
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.token_text import cut, one_line

BAD, EVEN, GOOD = "#D55E00", "#ECEAE6", "#0072B2"  # vermilion and blue of Okabe and Ito
DIVERGING = LinearSegmentedColormap.from_list("credit", [BAD, EVEN, GOOD])
MONO = {"family": "monospace", "parse_math": False}  # a token may contain a dollar sign
EDGE = "#B8B4AC"

TREE_TEXT, LEAF_TEXT = 18, 30  # characters of a box


def draw(runs: Sequence[RecordedRun], folder: Path) -> None:
    """Write `tree` of the first run that recorded trees in training, as PNG and SVG."""
    groups = next((run.groups["train"] for run in runs if run.groups.get("train")), None)
    if groups is None:
        return
    figure = draw_tree(groups[opening_group(groups)])
    for kind in ("png", "svg"):
        write_atomically(folder / f"tree.{kind}", picture(figure, kind))


def picture(figure: Figure, kind: str) -> bytes:
    """A figure as `"png"` or `"svg"`, always the same bytes, and without warnings of missing glyphs."""
    content = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "tempo_trl"}):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=140, bbox_inches="tight", metadata=metadata)
    return content.getvalue()


def draw_tree(group: Group) -> Figure:
    """A group's folded prefix tree, from left to right: height by completions, colour by V, leaves right or wrong."""
    nodes = group.tree
    texts = [cut(node.text, LEAF_TEXT if node.is_leaf else TREE_TEXT) if node.end else "prompt" for node in nodes]
    widths = np.full(1 + max(node.level for node in nodes), 15)
    widths[0] = 9
    for node, text in zip(nodes, texts, strict=True):
        widths[node.level] = max(widths[node.level], len(text) + 2)
    left = np.concatenate([[0], np.cumsum(widths + 4)])
    figure = Figure(figsize=(0.085 * left[-1] + 0.6, 0.42 * len(group.ids) + 0.5))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-1, left[-1] + 4), ylim=(len(group.ids) + 0.1, -0.9))
    axes.axis("off")
    axes.text(0, -0.4, cut(one_line(group.prompt), 90), fontsize=9, va="center", color="#555555", **MONO)
    for node, text in zip(nodes, texts, strict=True):
        _box(axes, left[node.level], widths[node.level], node, text, group)
    return figure


def _box(axes, x: float, width: float, node: FoldedNode, text: str, group: Group) -> None:
    y, rows, (low, high) = node.top, len(node.rows), reward_range([group])
    colour = value_colour(node.value, low, high)
    style = {"boxstyle": "round,pad=0,rounding_size=0.12", "mutation_aspect": 0.9, "edgecolor": EDGE}
    if node.end:
        corners = [(x - 4, y + 0.06), (x, y + 0.06), (x, y + rows - 0.06), (x - 4, y + rows - 0.06)]
        axes.add_patch(Polygon(corners, color="#E3E1DC", alpha=0.8, linewidth=0))
    axes.add_patch(FancyBboxPatch((x, y + 0.06), width, rows - 0.12, facecolor=colour, linewidth=0.6, **style))
    axes.text(x + 0.8, y + rows / 2 - 0.16, text, fontsize=8, va="center", **MONO)
    numbers = (f"{node.td:+.2f}  " if node.td else "") + f"V {node.value:.2f}  n {rows}"
    weight = "bold" if node.td else "normal"
    axes.text(x + 0.8, y + rows / 2 + 0.22, numbers, fontsize=6.5, va="center", color="#333333", weight=weight)
    if node.ended:
        right = sum(is_right(group.rewards[row], low, high) for row in node.ended)
        counts = {"✓": right, "✗": len(node.ended) - right}
        marks = " ".join(sign + (f"×{count}" if count > 1 else "") for sign, count in counts.items() if count)
        colour = GOOD if right == len(node.ended) else BAD
        axes.text(x + width + 0.7, y + rows - len(node.ended) / 2, marks, fontsize=9, va="center", color=colour)


def value_colour(value: float, low: float, high: float) -> tuple[float, ...]:
    """The light colour of a box by its value, in the range of rewards from `low` to `high`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return tuple(0.6 * c + 0.4 for c in DIVERGING(share)[:3])
