"""A group in the terminal: its prefix tree with values and TD errors at branches, its credit by turn and criterion."""

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tempo_trl.report.criteria import criteria_of
from tempo_trl.report.folded_tree import FoldedNode, fold, labelled
from tempo_trl.report.group import Group
from tempo_trl.report.turns import Turn, turns_of_group
from tempo_trl.runs.criteria import Span
from tempo_trl.runs.token_text import around, cut, one_line, readable, shortened

# Blue for good and orange for bad, which colour-blind people can tell apart.
GOOD, BAD, EVEN = "dodger_blue1", "dark_orange", "grey62"
LISTED = 12  # number of tokens listed for a group, largest |TD| first
CONTEXT = 30  # characters before and after such a token
LONGEST = 160  # maximum number of characters shown of a run
CALLS = 30  # and of the tools that a turn calls
NAME = 24  # and of the name of a criterion


def terminal_tree(pieces: list[list[str]], rewards: list[float], title: str) -> Tree:
    """
    Draw a group. Runs of tokens without a branch are folded. Each shows the number of completions through it, its
    value V (the mean of their rewards) and, after a branch, the TD error of its first token.

    Args:
        pieces (`list[list[str]]`):
            The tokens of each completion, as text.
        rewards (`list[float]`):
            Reward of each completion.
        title (`str`):
            Title, for example the prompt.

    Returns:
        `rich.tree.Tree`, to be printed by a `rich.console.Console`.
    """
    nodes = fold(pieces)

    def value(node: FoldedNode) -> float:
        return float(np.mean([rewards[row] for row in node.rows]))

    return _tree(labelled(nodes, pieces, value, lambda node: value(node) - value(nodes[max(node.parent, 0)])), title)


def group_tree(group: Group) -> Tree:
    """The same picture of a recorded group, with the values that were recorded."""
    return _tree(group.tree, shortened(one_line(group.prompt), LONGEST))


def token_table(group: Group) -> Table:
    """The tokens of a group with the largest |TD|, shared ones once, with the advantages of GRPO and of the method."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("completion", "token", group.terms.added, "GRPO", group.terms.label):
        table.add_column(heading, justify="left" if heading == "token" else "right")
    places = [(i, int(t)) for i, td in enumerate(group.td_errors) for t in np.flatnonzero(td)]
    seen: set[tuple] = set()
    for i, t in sorted(places, key=lambda place: -abs(group.td_errors[place[0]][place[1]])):
        state = tuple(group.ids[i][: t + 1])
        if state in seen or len(seen) == LISTED:
            continue
        seen.add(state)
        td, gives, pieces = group.td_errors[i][t], group.advantages[i][t], readable(group.tokens[i])
        before, after = around(pieces, t, CONTEXT)
        text = Text(before, style=EVEN).append(one_line(pieces[t]), style="bold default reverse").append(after)
        numbers = (Text(f"{td:+.2f}", style=credit_colour(td)), f"{group.outcome[i]:+.2f}", f"{gives:+.2f}")
        table.add_row(str(i + 1), text, *numbers)
    return table


def turn_tables(group: Group, console: Console) -> list[Table]:
    """
    Tools and mean advantage of each turn of a group's completions: a table, or several where a console is too narrow
    for all turns. Empty if no completion has two.
    """
    turns = turns_of_group(group)
    heads = [f"turn {n + 1}" for n in range(max(map(len, turns), default=0))]
    rows = [(f"{group.rewards[row]:g}", list(map(_turn, own))) for row, own in enumerate(turns)]
    return _tables(heads, rows, console)


def criteria_tables(group: Group, console: Console) -> list[Table]:
    """
    Reward and advantage of each criterion in a group's completions: a table, or several where a console is too narrow
    for all criteria. Empty if no criterion was recorded.
    """
    names, rows = criteria_of(group), []
    for reward, spans in zip(group.rewards, group.spans, strict=False):
        own = {span.name: span for span in spans}
        rows.append(("–" if np.isnan(reward) else f"{reward:.2f}", [_criterion(own.get(name)) for name in names]))
    return _tables([cut(one_line(name), NAME) for name in names], rows, console)


def _tables(heads: Sequence[str], rows: Sequence[tuple[str, list[Text]]], console: Console) -> list[Table]:
    """Tables with a column for each of `heads`, as many in each as fit. A row has the reward and the cells."""
    tables, first = [], 0
    while first < len(heads):
        end = first + 1
        while end < len(heads) and _width(_table(heads, rows, first, end + 1), console) <= console.width:
            end += 1
        tables.append(_table(heads, rows, first, end))
        first = end
    return tables


def _table(heads: Sequence[str], rows: Sequence[tuple[str, list[Text]]], first: int, end: int) -> Table:
    """The columns `[first:end]` of the completions that have one of them."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("completion", "reward", *heads[first:end]):
        table.add_column(Text(heading), justify="right", no_wrap=True)  # a name is not markup
    for number, (reward, cells) in enumerate(rows, start=1):
        if cells[first:]:
            table.add_row(str(number), reward, *cells[first:end])
    return table


def _criterion(span: Span | None) -> Text:
    if span is None:
        return Text("")
    text = Text(f"{span.reward:.3g}")
    return text if span.advantage is None else text.append(f" {span.advantage:+.2f}", credit_colour(span.advantage))


def _turn(turn: Turn) -> Text:
    return Text(f"{turn.credit:+.2f}", credit_colour(turn.credit)).append(f"\n{cut(turn.calls, CALLS)}", EVEN)


def _width(table: Table, console: Console) -> int:
    """How wide a table is where nothing is cut."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _tree(nodes: Sequence[FoldedNode], title: str) -> Tree:
    drawn: list[Tree] = []
    for node in nodes:
        if node.end:
            parted = len(node.rows) < len(nodes[node.parent].rows)
            label = _label(shortened(node.text, LONGEST), len(node.rows), node.value, node.td if parted else None)
            drawn.append(drawn[node.parent].add(label))
        else:
            drawn.append(Tree(Text(f"{title}   n={len(node.rows)}  V={node.value:.2f}"), guide_style="grey42"))
        if node.ended and not node.is_leaf:  # completions that end here, while others continue, share its value
            drawn[-1].add(_label("(end)", len(node.ended), node.value, None))
    return drawn[0]


def _label(text: str, count: int, value: float, td: float | None) -> Text:
    colour = EVEN if td is None else credit_colour(td)
    label = Text(text, style=f"bold {colour}")
    label.append(f"   n={count}  V={value:.2f}", style="default")
    if td is not None:
        label.append(f"  TD={td:+.2f}", style=colour)
    return label


def credit_colour(credit: float) -> str:
    """The colour of a token, a turn or a criterion by its credit."""
    return EVEN if abs(credit) < 1e-6 else GOOD if credit > 0 else BAD
