"""A group's prefix tree for the page, the pictures and the terminal: folded, labelled and laid out.

A node is a run of tokens in which no completion ends or branches off.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tempo_trl.runs.token_text import common_length, one_line, readable


class FoldedNode(NamedTuple):
    """
    A run of tokens that the same completions share.

    Args:
        parent: Index of the node before it, -1 for the prompt.
        rows: The completions through it.
        begin, end: Its tokens are `[begin:end]` of any of them; both are 0 for the prompt.
        ended: Those of its completions that end with its last token.
        level, top: Its position: number of nodes to the left, and number of completions above it. Its height is the
            number of its completions; those that end with it are below its children.
        pieces: Readable text of each of its tokens.
        value, td: V after it, and the TD error of its first token (0 for the prompt), in units of the rewards.
    """

    parent: int
    rows: tuple[int, ...]
    begin: int
    end: int
    ended: tuple[int, ...]
    level: int = 0
    top: int = 0
    pieces: Sequence[str] = ()
    value: float = 0.0
    td: float = 0.0

    @property
    def is_leaf(self) -> bool:
        """Whether all of its completions end with it."""
        return len(self.ended) == len(self.rows)

    @property
    def text(self) -> str:
        """Its tokens on one line."""
        return one_line("".join(self.pieces))


def fold(completions: Sequence[Sequence]) -> list[FoldedNode]:
    """
    Nodes of the prefix tree of token rows, laid out but not labelled; parents before their children, the prompt first.

    Tokens may be ids or texts, or anything that can be sorted. Children are sorted by their next tokens.
    """
    rows = [list(completion) for completion in completions]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    shared = [0, *(common_length(rows[a], rows[b]) for a, b in pairwise(order))]
    nodes = []
    waiting = [(-1, 0, len(order), 0, 0, 0, 0)]  # parent, places from and to, tokens from and to, level and top
    while waiting:
        parent, start, stop, begin, end, level, top = waiting.pop()
        ended = tuple(sorted(row for row in order[start:stop] if len(rows[row]) == end))
        nodes.append(FoldedNode(parent, tuple(sorted(order[start:stop])), begin, end, ended, level, top))
        first = start + len(ended)  # a row that ends here is sorted before those that continue
        bounds = [first, *(place for place in range(first + 1, stop) if shared[place] == end), stop]
        for a, b in reversed(list(pairwise(bounds))):
            if a < b:
                until = min(shared[a + 1 : b], default=len(rows[order[a]]))
                waiting.append((len(nodes) - 1, a, b, end, until, level + 1, top + a - first))
    return nodes


def branches(nodes: Sequence[FoldedNode]) -> np.ndarray:
    """Different next tokens after each node, `(len(nodes),)`: at least two at a branch, 0 at a leaf."""
    return np.bincount([node.parent for node in nodes[1:]], minlength=len(nodes))


def labelled(
    nodes: Sequence[FoldedNode], tokens: Sequence[Sequence[str]], value: Callable[[FoldedNode], float]
) -> list[FoldedNode]:
    """The nodes with the texts of their tokens, with the value of each, and its difference to that of its parent."""
    found = []
    for node in nodes:
        pieces, own = readable(tokens[node.rows[0]][node.begin : node.end]), value(node)
        td = own - found[node.parent].value if found else 0.0
        found.append(node._replace(pieces=pieces, value=own, td=td))
    return found


def first_branch(nodes: Sequence[FoldedNode]) -> int | None:
    """Tokens before the first branch of completions; None without one."""
    return next((node.end for node, n in zip(nodes, branches(nodes), strict=True) if n > 1), None)
