"""Where the picture of a turn graph has its states, and the curves of the arrows between them.

Lengths are in inches, from the upper left corner of the first state to the right and down.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from tempo_trl.report.turn_graph import StateNode

Cell = tuple[int, int]  # column and row of a state
Pair = tuple[int, int]  # the states before and after a turn
WIDTH, HEIGHT = 2.0, 0.5  # of a state
ACROSS, DOWN = 3.1, 1.0  # from a state to the next
LANE = 0.25  # from an arc to the next that passes below or above the same states
SHORT = 0.4  # half the width of an arc's label
GAP = 0.03  # from the tip of an arrow to its state


def state_cells(states: Sequence[StateNode]) -> list[Cell]:
    """Columns by the earliest turn; in a column, states that more completions saw are further up."""
    below, cells = defaultdict(int), [(0, 0)] * len(states)
    for index in sorted(range(len(states)), key=lambda i: -len(states[i].visitors)):
        column = states[index].first
        cells[index] = (column, below[column])
        below[column] += 1
    return cells


def turn_curves(cells: Sequence[Cell], pairs: Iterable[Pair]) -> dict[Pair, np.ndarray]:
    """
    The arrow of each pair of states, as the four control points (4, 2) of a cubic Bézier curve.

    To the next column it leads through the gap, within a column along its right side. Other arrows are arcs: above the
    states to a later column, below them to an earlier one or to the same state. Each arc has a lane of its own, short
    arcs next to the states.
    """
    curves, lanes = {}, []
    for pair in sorted(pairs, key=lambda pair: (abs(cells[pair[0]][0] - cells[pair[1]][0]), pair)):
        (column, row), (to_column, to_row) = a, b = [cells[state] for state in pair]
        if to_column == column + 1:
            curves[pair] = _through_the_gap(a, b)
        elif to_column == column and to_row != row:
            curves[pair] = _beside(a, b)
        else:
            curves[pair] = _arc(a, b, cells, lanes)
    return curves


def on_curve(curve: np.ndarray, t: float) -> np.ndarray:
    """The point (2,) of a cubic Bézier curve at `t`, between 0 and 1."""
    return np.array([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]) @ curve


def _through_the_gap(a: Cell, b: Cell) -> np.ndarray:
    x, end = a[0] * ACROSS + WIDTH, b[0] * ACROSS - GAP
    y, to_y = (row * DOWN + HEIGHT / 2 for _, row in (a, b))
    return np.array([(x, y), ((x + end) / 2, y), ((x + end) / 2, to_y), (end, to_y)])


def _beside(a: Cell, b: Cell) -> np.ndarray:
    x, out = a[0] * ACROSS + WIDTH, min(0.3 + 0.1 * abs(a[1] - b[1]), 0.8)
    y, to_y = a[1] * DOWN + 0.7 * HEIGHT, b[1] * DOWN + 0.3 * HEIGHT
    return np.array([(x, y), (x + out, y), (x + out, to_y), (x + GAP, to_y)])


def _arc(a: Cell, b: Cell, cells: Sequence[Cell], lanes: list[tuple[float, float, int]]) -> np.ndarray:
    """`lanes` has the left and right end of each arc so far, and its lane; takes those of this one."""
    above = b[0] > a[0]
    columns = range(min(a[0], b[0]), max(a[0], b[0]) + 1)
    lowest = a[1] if a == b else max(row for column, row in cells if column in columns)
    x, to_x = a[0] * ACROSS + 0.6 * WIDTH, b[0] * ACROSS + 0.4 * WIDTH
    left, right = min(x, to_x, (x + to_x) / 2 - SHORT), max(x, to_x, (x + to_x) / 2 + SHORT)
    taken = {lane for begin, end, lane in lanes if begin < right and left < end}
    first = -1 if above else round((lowest * DOWN + HEIGHT) / LANE) + 1
    lane = next(lane for lane in count(first, -1 if above else 1) if lane not in taken)
    lanes.append((left, right, lane))
    y, to_y = (row * DOWN + (0 if above else HEIGHT) for _, row in (a, b))
    to_y += -GAP if above else GAP
    depth = (8 * lane * LANE - y - to_y) / 6  # of the control points, so that the middle of the curve is in the lane
    return np.array([(x, y), (x, depth), (to_x, depth), (to_x, to_y)])
