"""The graph of a group's turns as a picture: the page's, for papers and model cards."""

from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from tempo_trl.report.colours import DIVERGING, EDGE, MONO, value_colour
from tempo_trl.report.group import Group, reward_range
from tempo_trl.report.turn_graph import END, StateNode, TurnGraph, TurnStep, turn_graph
from tempo_trl.report.turn_layout import ACROSS, DOWN, HEIGHT, WIDTH, Pair, on_curve, state_cells, turn_curves
from tempo_trl.runs.token_text import cut, one_line

TEXT, CALLS = 20, 14  # characters of a state, and of the tools beside an arrow
CALL_SIZE = 6.5  # points
THICK = 8  # turns from which an arrow does not become wider
MARGIN = 0.06  # inches around all that is drawn
LARGEST = 120.0  # inches: a larger graph is left to the page, which scrolls


def draw_turns(group: Group) -> Figure | None:
    """
    States from left to right by their earliest turn, coloured by V; arrows are turns, coloured by their mean credit.

    None if turns were not recorded, if no completion has two, and for graphs that are too large for a picture.
    """
    graph = turn_graph(group)
    if graph is None:
        return None
    cells, turns = state_cells(graph.states), _turns_between(graph)
    if max(max(column * ACROSS, row * DOWN) for column, row in cells) > LARGEST:
        return None
    figure = Figure(figsize=(1, 1))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(1, 0))  # a unit is an inch
    axes.axis("off")
    _arrows(axes, turns, turn_curves(cells, turns))
    low, high = reward_range([group])
    for state, (column, row) in zip(graph.states, cells, strict=True):
        value = (low + high) / 2 if np.isnan(state.value) else state.value
        _box(axes, state, (column * ACROSS, row * DOWN), value_colour(value, low, high))
    _fit(axes)
    return figure if max(figure.get_size_inches()) <= LARGEST else None


def _fit(axes: Axes) -> None:
    """Give the figure the size of all that is drawn on it: an inch of the picture stays an inch."""
    box = Bbox.union([artist.get_window_extent() for artist in (*axes.patches, *axes.texts)])
    (left, bottom), (right, top) = axes.transData.inverted().transform(box.padded(MARGIN * axes.figure.dpi))
    axes.figure.set_size_inches(right - left, bottom - top)
    axes.set(xlim=(left, right), ylim=(bottom, top))


def _turns_between(graph: TurnGraph) -> dict[Pair, list[TurnStep]]:
    turns = defaultdict(list)
    for step in (step for row in graph.rows for step in row if step.next != END):
        turns[step.state, step.next].append(step)
    return turns


def _arrows(axes: Axes, turns: dict[Pair, list[TurnStep]], curves: dict[Pair, np.ndarray]) -> None:
    """An arrow for all turns from one state to another."""
    scale = max((abs(step.credit) for steps in turns.values() for step in steps), default=0.0) or 1.0
    labels: list[Bbox] = []
    for pair, curve in curves.items():
        _arrow(axes, curve, turns[pair], scale)
        calls = cut(", ".join(dict.fromkeys(step.calls for step in turns[pair] if step.calls)), CALLS)
        if calls:
            labels.append(_call(axes, curve, calls, labels))


def _arrow(axes: Axes, curve: np.ndarray, steps: list[TurnStep], scale: float) -> None:
    """As wide as its turns are many, in the colour of their mean credit."""
    mean, width = float(np.mean([step.credit for step in steps])), 1 + 0.6 * min(len(steps), THICK)
    path = Path(curve, [Path.MOVETO, *[Path.CURVE4] * 3])
    look = {"color": DIVERGING(0.5 + 0.5 * mean / scale), "linewidth": width, "mutation_scale": 7 + 1.5 * width}
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", **look))


def _call(axes: Axes, curve: np.ndarray, calls: str, others: list[Bbox]) -> Bbox:
    """Write the tools on their arrow, or below it if they would hide it; where no other label is, if possible."""
    half = np.array([0.3 * len(calls) + 0.3, 0.6]) * CALL_SIZE / 72
    lower = np.array([0, 0.14 if 4 * half[0] > np.hypot(*(curve[3] - curve[0])) else 0])
    middles = (on_curve(curve, t) + lower for t in (0.5, 0.4, 0.6, 0.3, 0.7))
    boxes = [Bbox([middle - half, middle + half]) for middle in middles]
    box = next((box for box in boxes if box.count_overlaps(others) == 0), boxes[0])
    behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
    axes.text(*(box.p0 + box.p1) / 2, calls, fontsize=CALL_SIZE, ha="center", va="center", bbox=behind, **MONO)
    return box


def _box(axes: Axes, state: StateNode, place: tuple[float, float], colour: tuple[float, ...]) -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=0.05", "edgecolor": EDGE, "linewidth": 0.6}
    axes.add_patch(FancyBboxPatch(place, WIDTH, HEIGHT, facecolor=colour, **style))
    text = one_line(state.text) or ("no answer" if state.first else "prompt")
    axes.text(place[0] + 0.08, place[1] + 0.18, cut(text, TEXT), fontsize=8, va="center", **MONO)
    numbers = f"V {state.value:.2f}  n {len(state.visitors)}"
    axes.text(place[0] + 0.08, place[1] + 0.38, numbers, fontsize=6.5, va="center", color="#333333")
