"""The turns of a group of agents as a graph: equal states are one node, turns lead from state to state."""

from typing import NamedTuple

import numpy as np

from tempo_trl.report.group import Group
from tempo_trl.runs.token_text import readable

END = -1  # where a completion's last turn leads
MAX_TEXT = 600  # characters of an observation that are kept


class StateNode(NamedTuple):
    """
    What the policy had seen before a turn: its prompt, or the answer of a tool or an environment.

    Args:
        text: The observation; empty for the prompt.
        first: The earliest turn before which a completion saw it.
        visitors: The completions that saw it.
        value: Mean reward of these completions, NaN if none was scored.
    """

    text: str
    first: int
    visitors: tuple[int, ...]
    value: float


class TurnStep(NamedTuple):
    """
    A turn of a completion.

    Args:
        state, next: Indices of the states before and after it; `END` after the last turn.
        begin, end: Its tokens are `[begin:end]`.
        credit: Mean advantage of its tokens in the loss, 0 without any.
        calls: Names of the tools that it calls, separated by commas.
    """

    state: int
    next: int
    begin: int
    end: int
    credit: float
    calls: str


class TurnGraph(NamedTuple):
    """The states of a group, and the turns of each of its completions."""

    states: list[StateNode]
    rows: list[list[TurnStep]]


def turn_graph(group: Group) -> TurnGraph | None:
    """The graph of a group's turns; None if it was not recorded, or if no completion has two turns."""
    if group.turns is None or max((len(states) for states in group.states), default=0) < 2:
        return None
    numbers: dict[int, int] = {}
    rows = [_steps(group, row, numbers) for row in range(len(group.ids))]
    places: dict[int, list[tuple[int, int]]] = {}
    for row, steps in enumerate(rows):
        for n, step in enumerate(steps):
            places.setdefault(step.state, []).append((n, row))
    return TurnGraph([_state(group, places[number], rows) for number in range(len(numbers))], rows)


def _steps(group: Group, row: int, numbers: dict[int, int]) -> list[TurnStep]:
    """The turns of a completion. `numbers` has the index of each state by its key, and takes the new ones."""
    turns, keys = group.turns[row], group.states[row]
    states = [numbers.setdefault(key, len(numbers)) for key in keys]
    steps = []
    for n, (state, following) in enumerate(zip(states, [*states[1:], END], strict=True)):
        tokens = np.flatnonzero(turns == n)
        credited = tokens[group.loss_mask[row][tokens]]
        credit = float(group.advantages[row][credited].mean()) if len(credited) else 0.0
        begin, end = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
        steps.append(TurnStep(state, following, begin, end, credit, group.calls[row][n]))
    return steps


def _state(group: Group, places: list[tuple[int, int]], rows: list[list[TurnStep]]) -> StateNode:
    visitors = tuple(sorted({row for _, row in places}))
    known = group.rewards[list(visitors)]
    known = known[~np.isnan(known)]
    n, row = min(places)
    return StateNode(_observed(group, rows, row, n), n, visitors, float(known.mean()) if len(known) else float("nan"))


def _observed(group: Group, rows: list[list[TurnStep]], row: int, n: int) -> str:
    """What was observed before a turn: from its messages, or where there are none, from its tokens."""
    text = group.observed[row][n]
    if not text and n:
        between = slice(rows[row][n - 1].end, rows[row][n].begin)
        text = "".join(readable(group.tokens[row][between]))
    return text.strip()[:MAX_TEXT]
