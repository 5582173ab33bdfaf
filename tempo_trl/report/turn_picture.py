"""The graph of a group's turns as a picture: the page's, for papers and model cards."""

from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tempo_trl.report.colours import DIVERGING, EDGE, MONO, value_colour
from tempo_trl.report.group import Group, reward_range
from tempo_trl.report.turn_graph import END, StateNode, TurnGraph, TurnStep, turn_graph
from tempo_trl.runs.token_text import cut, one_line

Place = tuple[float, float]  # inches from the left and from the top
TEXT = 20  # characters of a state
WIDTH, ACROSS, DOWN = 2.0, 3.1, 1.0  # inches of a box, and from one to the next
HEIGHT = 0.5
LARGEST = 120.0  # inches: a longer graph is left to the page, which scrolls


def draw_turns(group: Group) -> Figure | None:
    """
    States from left to right by their earliest turn, coloured by V; arrows are turns, coloured by their mean credit.

    None if turns were not recorded, if no completion has two, and for graphs that are too large for a picture.
    """
    graph = turn_graph(group)
    if graph is None:
        return None
    places = state_places(graph.states)
    right, bottom = (max(place[axis] for place in places) for axis in (0, 1))
    if max(right, bottom) > LARGEST:
        return None
    figure = Figure(figsize=(right + WIDTH + 0.2, bottom + HEIGHT + 0.7))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.1, right + WIDTH + 0.1), ylim=(bottom + HEIGHT + 0.4, -0.3))
    axes.axis("off")
    _arrows(axes, graph, places)
    low, high = reward_range([group])
    for state, place in zip(graph.states, places, strict=True):
        value = (low + high) / 2 if np.isnan(state.value) else state.value
        _box(axes, state, place, value_colour(value, low, high))
    return figure


def state_places(states: list[StateNode]) -> list[Place]:
    """The upper left corner of each state; those that most completions saw are on top."""
    below, places = defaultdict(int), [(0.0, 0.0)] * len(states)
    for index in sorted(range(len(states)), key=lambda i: -len(states[i].visitors)):
        layer = states[index].first
        places[index] = (layer * ACROSS, below[layer] * DOWN)
        below[layer] += 1
    return places


def _arrows(axes: Axes, graph: TurnGraph, places: list[Place]) -> None:
    """An arrow for all turns from one state to another."""
    turns = defaultdict(list)
    for step in (step for row in graph.rows for step in row if step.next != END):
        turns[step.state, step.next].append(step)
    scale = max((abs(step.credit) for steps in turns.values() for step in steps), default=0.0) or 1.0
    for (start, end), steps in turns.items():
        _arrow(axes, places[start], places[end], steps, scale)


def _arrow(axes: Axes, start: Place, end: Place, steps: list[TurnStep], scale: float) -> None:
    """As wide as its turns are many, in the colour of their mean credit, with the tools that they call."""
    begin, finish, bend = _ends(start, end)
    mean = float(np.mean([step.credit for step in steps]))
    look = {"color": DIVERGING(0.5 + 0.5 * mean / scale), "linewidth": 1 + 0.6 * len(steps), "mutation_scale": 9}
    style = f"arc3,rad={bend}"
    axes.add_patch(FancyArrowPatch(begin, finish, arrowstyle="-|>", connectionstyle=style, **look))
    (x, y), (across, down) = np.mean([begin, finish], axis=0), np.subtract(finish, begin)
    middle = x - bend * down / 2, y + bend * across / 2 + 0.08  # of the curve
    behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
    calls = ", ".join(dict.fromkeys(step.calls for step in steps if step.calls))
    axes.text(*middle, cut(calls, 14), fontsize=6.5, ha="center", va="center", bbox=behind, **MONO)


def _ends(a: Place, b: Place) -> tuple[Place, Place, float]:
    """Where an arrow begins and ends, and its curvature: straight to a later layer, below the boxes to any other."""
    if b[0] > a[0]:
        return (a[0] + WIDTH, a[1] + HEIGHT / 2), (b[0], b[1] + HEIGHT / 2), 0.0
    return (a[0] + 0.6 * WIDTH, a[1] + HEIGHT), (b[0] + 0.4 * WIDTH, b[1] + HEIGHT), -0.4


def _box(axes: Axes, state: StateNode, place: Place, colour: tuple[float, ...]) -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=0.05", "edgecolor": EDGE, "linewidth": 0.6}
    axes.add_patch(FancyBboxPatch(place, WIDTH, HEIGHT, facecolor=colour, **style))
    text = one_line(state.text) or ("no answer" if state.first else "prompt")
    axes.text(place[0] + 0.08, place[1] + 0.18, cut(text, TEXT), fontsize=8, va="center", **MONO)
    numbers = f"V {state.value:.2f}  n {len(state.visitors)}"
    axes.text(place[0] + 0.08, place[1] + 0.38, numbers, fontsize=6.5, va="center", color="#333333")
