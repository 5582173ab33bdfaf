"""The turns of an agent's completions, as text with their credit."""

from typing import NamedTuple

import numpy as np

from tempo_trl.report.group import Group

MAX_TEXT = 600  # characters of an observation that are kept


class Turn(NamedTuple):
    """
    A turn of a completion.

    Args:
        begin, end: Its tokens are `[begin:end]`.
        credit: Mean advantage of its tokens in the loss, 0 without any.
        calls: Names of the tools that it calls, separated by commas.
        observed: Text of the messages just before it; empty for the first turn.
    """

    begin: int
    end: int
    credit: float
    calls: str
    observed: str


def turns_of_group(group: Group) -> list[list[Turn]]:
    """The turns of each completion; empty if no completion has two."""
    if max((len(calls) for calls in group.calls), default=0) < 2:
        return []
    return [[_turn(group, row, n) for n in range(len(calls))] for row, calls in enumerate(group.calls)]


def _turn(group: Group, row: int, n: int) -> Turn:
    tokens = np.flatnonzero(group.turns[row] == n)
    credited = tokens[group.loss_mask[row][tokens]]
    credit = float(group.advantages[row][credited].mean()) if len(credited) else 0.0
    begin, end = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
    return Turn(begin, end, credit, group.calls[row][n], group.observed[row][n].strip()[:MAX_TEXT])
