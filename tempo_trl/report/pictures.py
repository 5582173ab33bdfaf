"""The pictures of a report as PNG and SVG, for papers, model cards and trackers."""

import re
import warnings
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon

from tempo_trl.report.collect import RecordedRun, opening_group
from tempo_trl.report.folded_tree import FoldedNode
from tempo_trl.report.group import Group, credit_scale, is_right, reward_range
from tempo_trl.runs.token_text import cut, one_line, readable

BAD, EVEN, GOOD = "#D55E00", "#ECEAE6", "#0072B2"  # vermilion and blue of Okabe and Ito
DIVERGING = LinearSegmentedColormap.from_list("credit", [BAD, EVEN, GOOD])
MONO = {"family": "monospace", "parse_math": False}  # a token may contain a dollar sign
EDGE = "#B8B4AC"

TREE_TEXT, LEAF_TEXT = 18, 30  # characters of a box
CREDIT_TOKENS, CREDIT_COLUMNS = 400, 132  # tokens of a completion, characters of a line
CREDIT_ROWS = 8
LETTER = 7  # points
RUN = 12  # most letters that are written at once: their widths are rounded to an eighth of a pixel each
CELL = 0.602 * LETTER / 72  # inches: the width of a letter of DejaVu Sans Mono, matplotlib's own font


def draw(runs: Sequence[RecordedRun], folder: Path) -> None:
    """Write `tree` and `credit` of the first run that recorded trees in training, each as PNG and SVG."""
    groups = next((run.groups["train"] for run in runs if run.groups.get("train")), None)
    if groups is None:
        return
    group = groups[opening_group(groups)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("tree", draw_tree(group)), ("credit", draw_credit(group))):
        for kind in ("png", "svg"):
            save(figure, folder / f"{name}.{kind}", kind)


def save(figure: Figure, file: Path | BinaryIO, kind: str) -> None:
    """Write a figure as `"png"` or `"svg"`, always with the same bytes, and without warnings of missing glyphs."""
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "tempo_trl"}):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=140, bbox_inches="tight", metadata=metadata)


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


def draw_credit(group: Group) -> Figure:
    """
    The first completions of a group as text, coloured by GRPO's credit and by the method's, on the same scale. Tokens
    that are not in the loss, such as a tool's answer, are grey.
    """
    scale, largest = credit_scale(group)
    lines = []  # (label, [(piece, value)]), where the value is NaN outside the loss
    for row in range(len(group.ids))[:CREDIT_ROWS]:
        pieces = [one_line(piece).replace("␣", " ") for piece in readable(group.tokens[row])][:CREDIT_TOKENS]
        for label, credit in (
            (f"{row + 1}  GRPO ", group.outcome[row]),
            (f"   {group.terms.label}", group.advantages[row]),
        ):
            values = np.where(group.loss_mask[row], credit, np.nan).tolist()
            lines += _wrapped(label, list(zip(pieces, values, strict=False)))
    longest = max((sum(len(piece) for piece, _ in line) for _, line in lines), default=1)
    margin = max(8, len(group.terms.label) + 3) + 3
    figure = Figure(figsize=(CELL * (longest + margin + 3), 0.2 * len(lines) + 0.5))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-margin, longest + 3), ylim=(len(lines) + 1.2, -0.6))
    axes.axis("off")
    for y, (label, line) in enumerate(lines):
        axes.text(0.5 - margin, y, label, fontsize=LETTER, va="center", color="#555555", **MONO)
        _credit_line(axes, y, line, scale)
    note = f"orange {-scale:+.2f}, white 0, blue {scale:+.2f}, in units of the advantage"
    note += f"; the largest 5%, up to {largest:.2f}, are as dark" if largest > scale else ""
    note += "" if all(row.all() for row in group.loss_mask) else "; grey is not in the loss"
    axes.text(0, len(lines) + 0.6, note, fontsize=LETTER, va="center", color="#555555")
    return figure


def _wrapped(label: str, pieces: list[tuple[str, float]]) -> list[tuple[str, list[tuple[str, float]]]]:
    lines, room = [(label, [])], CREDIT_COLUMNS
    for piece, value in pieces:
        if len(piece) > room and lines[-1][1]:
            lines.append(("", []))
            room = CREDIT_COLUMNS
        lines[-1][1].append((cut(piece, CREDIT_COLUMNS), value))
        room -= len(piece)
    return lines


def _credit_line(axes, y: float, line: list[tuple[str, float]], scale: float) -> None:
    ends = np.cumsum([len(piece) for piece, _ in line])
    cells = [(end - len(piece), len(piece)) for end, (piece, _) in zip(ends, line, strict=True)]
    values = np.nan_to_num([value for _, value in line])
    colours = [to_rgba(GOOD if value > 0 else BAD, 0.65 * min(abs(value) / scale, 1.0)) for value in values]
    axes.broken_barh(cells, (y - 0.42, 0.84), facecolors=colours, linewidth=0)
    begin = 0
    for outside, pieces in groupby(line, key=lambda own: bool(np.isnan(own[1]))):
        text = "".join(piece for piece, _ in pieces)
        _letters(axes, begin, y, text, "#999999" if outside else "black")
        begin += len(text)


def _letters(axes, begin: int, y: float, text: str, colour: str) -> None:
    for found in re.finditer(rf" *[!-~]{{1,{RUN}}}| +|.", text):
        # Characters of other fonts have other widths: each in the middle of its cell.
        other, x = not found[0].isascii(), begin + found.start()
        place = {"x": x + 0.5, "ha": "center"} if other else {"x": x, "ha": "left"}
        axes.text(**place, y=y, s=found[0], fontsize=LETTER, va="center", color=colour, **MONO)


def value_colour(value: float, low: float, high: float) -> tuple[float, ...]:
    """The light colour of a box by its value, in the range of rewards from `low` to `high`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return tuple(0.6 * c + 0.4 for c in DIVERGING(share)[:3])
