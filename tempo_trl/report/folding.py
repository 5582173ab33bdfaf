"""A group's prefix tree with its runs folded: a node is a stretch of tokens along which nobody leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np


class FoldedNode(NamedTuple):
    """
    A run of tokens that the same completions walk.

    Args:
        parent: Index of the node before it, -1 for the prompt.
        rows: The completions through it.
        begin, end: Its tokens are `rows[0][begin:end]` of any of them; both are 0 for the prompt.
        ended: Those of its completions that end with its last token.
    """

    parent: int
    rows: tuple[int, ...]
    begin: int
    end: int
    ended: tuple[int, ...]


def fold(completions: Sequence[Sequence]) -> list[FoldedNode]:
    """
    Nodes of the prefix tree of token rows, parents before their children; node 0 is the prompt.

    Tokens may be ids or texts, anything that can be ordered. Children stand in the order of their next tokens.
    """
    rows = [list(completion) for completion in completions]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    shared = [0, *(_shared(rows[a], rows[b]) for a, b in pairwise(order))]
    nodes = []
    waiting = [(-1, 0, len(order), 0, 0)]  # parent, places from and to, tokens from and to
    while waiting:
        parent, start, stop, begin, end = waiting.pop()
        ended = tuple(sorted(row for row in order[start:stop] if len(rows[row]) == end))
        nodes.append(FoldedNode(parent, tuple(sorted(order[start:stop])), begin, end, ended))
        first = start + len(ended)  # a row that ends here is sorted before those that go on
        bounds = [first, *(place for place in range(first + 1, stop) if shared[place] == end), stop]
        for a, b in reversed(list(pairwise(bounds))):
            if a < b:
                until = min(shared[a + 1 : b], default=len(rows[order[a]]))
                waiting.append((len(nodes) - 1, a, b, end, until))
    return nodes


def _shared(a: Sequence, b: Sequence) -> int:
    """Tokens that two rows share at their beginning."""
    least = min(len(a), len(b))
    if a[:least] == b[:least]:
        return least
    low, high = 0, least  # a[:low] == b[:low], a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low


def branches(nodes: Sequence[FoldedNode]) -> np.ndarray:
    """Different next tokens after each node, `(len(nodes),)`: at least two at a branch, 0 at a leaf."""
    return np.bincount([node.parent for node in nodes[1:]], minlength=len(nodes))


@dataclass(frozen=True)
class Group:
    """
    A recorded group: what [`~tempo_trl.runs.trees`] documents, G completions of one prompt.

    Args:
        step, group: When it was sampled and which of its batch it is.
        prompt: The prompt's text.
        ids, tokens: Token ids and their texts, G lists of T_i.
        values: Prefix values, G arrays of T_i + 1, in units of the rewards.
        td_errors, advantages: G arrays of T_i, in units of the advantages.
        entropies: G arrays of T_i in nats, or None.
        loss_mask: G arrays of T_i, bool.
        outcome, rewards: Arrays of G; NaN where a completion is unscorable.
    """

    step: int
    group: int
    prompt: str
    ids: list[list[int]]
    tokens: list[list[str]]
    values: list[np.ndarray]
    td_errors: list[np.ndarray]
    advantages: list[np.ndarray]
    entropies: list[np.ndarray] | None
    loss_mask: list[np.ndarray]
    outcome: np.ndarray
    rewards: np.ndarray

    def nodes(self) -> list[FoldedNode]:
        """Its folded prefix tree."""
        return fold(self.ids)

    def value(self, node: FoldedNode) -> float:
        """V of a node, in units of the rewards."""
        return float(self.values[node.rows[0]][node.end])

    def td(self, node: FoldedNode) -> float:
        """TD error of a node's first token, in units of the rewards; 0 for the prompt."""
        values = self.values[node.rows[0]]
        return float(values[node.begin + 1] - values[node.begin]) if node.end else 0.0


def groups_of(trees) -> list[Group]:
    """The groups of what [`~tempo_trl.report.read_trees`] returned, in order."""
    return [_group(step, group, rows) for (step, group), rows in trees.groupby(["step", "group"], sort=True)]


def _group(step: int, group: int, rows) -> Group:
    lists = {name: rows[name].tolist() for name in rows.columns}
    return Group(
        step=int(step),
        group=int(group),
        prompt=lists["prompt"][0],
        ids=[row.tolist() for row in lists["completion_ids"]],
        tokens=[row.tolist() for row in lists["tokens"]],
        values=lists["values"],
        td_errors=lists["td_errors"],
        advantages=lists["advantages"],
        entropies=None if any(row is None for row in lists["entropies"]) else lists["entropies"],
        loss_mask=lists["loss_mask"],
        outcome=np.array(lists["outcome"], dtype=float),
        rewards=np.array(lists["reward"], dtype=float),
    )
