"""A group's prefix tree in the terminal: where its completions part, and what each turn is worth."""

from itertools import groupby
from operator import itemgetter

import numpy as np
from rich.text import Text
from rich.tree import Tree

# Blue for good and orange for bad, as far apart for colour-blind eyes as for others; brightness marks no rank.
GOOD, BAD, EVEN = "dodger_blue1", "dark_orange", "grey62"


def terminal_tree(pieces: list[list[str]], rewards: list[float], title: str) -> Tree:
    """
    Draw a group: runs of tokens without a branch are folded, each with the number of completions through it, its value
    V (mean of their rewards) and, where it began at a branch, the TD error of its first token.

    Args:
        pieces (`list[list[str]]`):
            The tokens of each completion, as text.
        rewards (`list[float]`):
            Reward of each completion.
        title (`str`):
            The prompt, say.

    Returns:
        `rich.tree.Tree`, to be printed by a `rich.console.Console`.
    """
    tree = Tree(Text(f"{title}   n={len(pieces)}  V={np.mean(rewards):.2f}"), guide_style="grey42")
    _grow(tree, sorted(zip(pieces, rewards, strict=True), key=itemgetter(0)), 0, float(np.mean(rewards)))
    return tree


def _grow(parent: Tree, rows: list[tuple[list[str], float]], depth: int, value: float) -> None:
    """Add what `rows` (sorted, equal up to `depth`, with the mean reward `value`) do next."""
    ended = [reward for tokens, reward in rows if len(tokens) == depth]
    if ended:
        parent.add(_label("(end)", len(ended), float(np.mean(ended)), None))
    for _, branch in groupby(rows[len(ended) :], key=lambda row: row[0][depth]):
        branch = list(branch)
        until = _shared_length(branch[0][0], branch[-1][0])
        worth = float(np.mean([reward for _, reward in branch]))
        text = "".join(branch[0][0][depth:until])
        child = parent.add(_label(text, len(branch), worth, worth - value if len(branch) < len(rows) else None))
        if any(len(tokens) > until for tokens, _ in branch):
            _grow(child, branch, until, worth)


def _shared_length(first: list[str], last: list[str]) -> int:
    """Tokens that all rows between two of a sorted list share."""
    parted = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(parted, min(len(first), len(last)))


def _label(text: str, count: int, value: float, td: float | None) -> Text:
    colour = EVEN if td is None or abs(td) < 1e-6 else GOOD if td > 0 else BAD
    label = Text(text, style=f"bold {colour}")
    label.append(f"   n={count}  V={value:.2f}", style="default")
    if td is not None:
        label.append(f"  TD={td:+.2f}", style=colour)
    return label
