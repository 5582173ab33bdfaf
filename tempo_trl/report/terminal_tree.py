"""`tempo-trl tree`: one recorded group in the terminal.

Its prefix tree with values and TD errors at branches, its credit by turn and by criterion.
"""

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from tempo_trl.report.collect import opening_group
from tempo_trl.report.criteria import with_places
from tempo_trl.report.folded_tree import FoldedNode, fold, labelled
from tempo_trl.report.group import Group, Turn, recorded_groups, turns_of_group
from tempo_trl.runs.criteria import Span
from tempo_trl.runs.token_text import around, cut, one_line, readable, shortened
from tempo_trl.runs.trees import recorded_steps

# Blue for good and orange for bad, which colour-blind people can tell apart.
GOOD, BAD, EVEN = "dodger_blue1", "dark_orange", "grey62"
LISTED = 12  # number of tokens listed for a group, largest |TD| first
CONTEXT = 30  # characters before and after such a token
LONGEST = 160  # maximum number of characters shown of a run
CALLS = 30  # and of the tools that a turn calls
NAME = 24  # and of the name of a criterion


def main(run_dir: str, step: int | None, prompt: int | None, mode: str) -> int:
    """Draw a group of a run and return the exit status. Raises as [`recorded_group`]."""
    group = recorded_group(run_dir, step, prompt, mode)
    console = Console()
    console.print(f"step {group.step}, group {group.group}", style="grey62", highlight=False)
    for part in filter(None, [group_tree(group), criteria_table(group), turn_table(group)]):
        console.print(part)
    return 0


def recorded_group(run_dir: str, step: int | None, prompt: int | None, mode: str = "train") -> Group:
    """
    A recorded group.

    Args:
        run_dir (`str`): The run's output folder.
        step (`int`, *optional*): Recorded step. Defaults to the last.
        prompt (`int`, *optional*): Its index in the record. Defaults to the most informative group.
        mode (`str`, *optional*, defaults to `"train"`): `"train"`, `"eval"` or `"eval_NAME"`.

    Raises:
        ValueError: nothing was recorded, or this step or group was not recorded.
    """
    if step is None:
        step = next(reversed(recorded_steps(run_dir, mode)), 0)
    groups = recorded_groups(run_dir, step, mode)
    if not groups:
        raise ValueError(f"the record of step {step} in {run_dir} is empty. Choose another --step.")
    by_number = {group.group: group for group in groups}
    number = groups[opening_group(groups)].group if prompt is None else prompt
    if number not in by_number:
        raise ValueError(
            f"group {number} of step {step} was not recorded. Choose --prompt from 0 to {max(by_number)}, or raise "
            "`log_trees_prompts` in the next run."
        )
    return by_number[number]


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
    nodes = labelled(fold(pieces), pieces, lambda node: float(np.mean([rewards[row] for row in node.rows])))
    return _tree(nodes, title)


def group_tree(group: Group) -> Tree:
    """The same picture of a recorded group, with the values that were recorded."""
    return _tree(group.tree, shortened(one_line(group.prompt), LONGEST))


def token_table(group: Group) -> Table:
    """The tokens of a group with the largest |TD|, shared ones once, with the advantages of GRPO and of the method."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("completion", "token", group.terms.added, "GRPO", group.terms.label):
        is_text = heading == "token"  # which gives way in a narrow terminal
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
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


def turn_table(group: Group) -> Table | None:
    """Tools and mean advantage of each turn of a group's completions; None if no completion has two."""
    return _table("turns", group, [list(map(_turn, own)) for own in turns_of_group(group)])


def criteria_table(group: Group) -> Table | None:
    """Reward and advantage of each criterion of a group's completions; None if no criterion was recorded."""
    rows = [[_criterion(span) for span, _ in with_places(own).values()] for own in group.spans]
    return _table("criteria", group, rows)


def _table(heading: str, group: Group, rows: Sequence[list[Text]]) -> Table | None:
    """A row for each completion: its number, its reward, and what it has."""
    numbers = (Column(head, justify="right", no_wrap=True) for head in ("completion", "reward"))
    table = Table(*numbers, Column(heading, overflow="fold"), box=SIMPLE_HEAD)
    for number, (reward, cells) in enumerate(zip(group.rewards, rows, strict=False), start=1):
        table.add_row(str(number), "–" if np.isnan(reward) else f"{reward:.2f}", Text(", ").join(cells))
    return table if rows else None


def _criterion(span: Span) -> Text:
    text = Text(f"{cut(one_line(span.name), NAME)}: {span.reward:.3g}")
    return text if span.advantage is None else text.append(f" {span.advantage:+.2f}", credit_colour(span.advantage))


def _turn(turn: Turn) -> Text:
    return Text(cut(one_line(turn.calls) or "text", CALLS)).append(f" {turn.credit:+.2f}", credit_colour(turn.credit))


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
