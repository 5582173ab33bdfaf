"""A group's prefix tree in the terminal: where its completions part, and what each turn is worth."""

from collections.abc import Sequence

import numpy as np
from rich.text import Text
from rich.tree import Tree

from tempo_trl.report.folding import FoldedNode, Group, fold
from tempo_trl.report.pieces import one_line, readable

# Blue for good and orange for bad, as far apart for colour-blind eyes as for others; brightness marks no rank.
GOOD, BAD, EVEN = "dodger_blue1", "dark_orange", "grey62"
LONGEST = 160  # characters of a run that are shown


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
    nodes = fold(pieces)
    values = [float(np.mean([rewards[row] for row in node.rows])) for node in nodes]
    steps = [value - values[max(node.parent, 0)] for node, value in zip(nodes, values, strict=True)]
    return _tree(nodes, pieces, values, steps, title)


def group_tree(group: Group) -> Tree:
    """The same picture of a recorded group, with the values that were recorded."""
    nodes = group.nodes()
    values, steps = [group.value(node) for node in nodes], [group.td(node) for node in nodes]
    return _tree(nodes, group.tokens, values, steps, shortened(one_line(group.prompt)))


def _tree(
    nodes: list[FoldedNode], pieces: Sequence[Sequence[str]], values: list[float], steps: list[float], title: str
) -> Tree:
    drawn = [Tree(Text(f"{title}   n={len(nodes[0].rows)}  V={values[0]:.2f}"), guide_style="grey42")]
    _add_ends(drawn[0], nodes, 0, values)
    for i, node in enumerate(nodes[1:], start=1):
        text = shortened(one_line("".join(readable(pieces[node.rows[0]][node.begin : node.end]))))
        parted = len(node.rows) < len(nodes[node.parent].rows)
        label = _label(text, len(node.rows), values[i], steps[i] if parted else None)
        drawn.append(drawn[node.parent].add(label))
        _add_ends(drawn[i], nodes, i, values)
    return drawn[0]


def _add_ends(branch: Tree, nodes: list[FoldedNode], i: int, values: list[float]) -> None:
    """Completions that end where others go on are a leaf of their own, which has the value of the state."""
    if nodes[i].ended and len(nodes[i].ended) < len(nodes[i].rows):
        branch.add(_label("(end)", len(nodes[i].ended), values[i], None))


def _label(text: str, count: int, value: float, td: float | None) -> Text:
    colour = EVEN if td is None or abs(td) < 1e-6 else GOOD if td > 0 else BAD
    label = Text(text, style=f"bold {colour}")
    label.append(f"   n={count}  V={value:.2f}", style="default")
    if td is not None:
        label.append(f"  TD={td:+.2f}", style=colour)
    return label


def shortened(text: str) -> str:
    """The beginning and the end of a long text, and how much lies between."""
    if len(text) <= LONGEST:
        return text
    head, tail = LONGEST * 2 // 3, LONGEST // 6
    return f"{text[:head]} …{len(text) - head - tail:,} characters… {text[-tail:]}"
