"""What the demo shows: shares by field, answers with the reference, and credit by field."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.demo.answers import FIELDS, checks, held_out_answers, held_out_rates, references
from tempo_trl.demo.run import Run
from tempo_trl.methods import METHODS
from tempo_trl.report.collect import spread
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.report.terminal_tree import BAD, GOOD, credit_colour
from tempo_trl.rewards.json_fields import json_fields
from tempo_trl.rewards.span_reward import SpanReward
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.statistics import wilson
from tempo_trl.runs.token_text import readable, visible
from tempo_trl.runs.trees import recorded_steps

CHECKS = {"all six fields": "all", "readable JSON": "json"}  # what the table has beside the fields
SHOWN_ORDERS, SHOWN_COMPLETIONS = 3, 3
GRPO = METHODS["grpo"].label


def show(runs: list[Run], folder: Path, console: Console) -> None:
    """Print tables, answers and credit; write results.json to `folder`."""
    answers = {run.method: held_out_answers(run.folder) for run in runs}
    rates = {method: held_out_rates(*tables) for method, tables in answers.items()}
    for run in runs:
        console.print(field_rates(rates[run.method], run.label, len(answers[run.method][0])))
    before, after = answers[runs[0].method]
    console.print(Text(f"The first {SHOWN_ORDERS} of the held-out orders ({runs[0].label})", style="italic"))
    for row in range(min(SHOWN_ORDERS, len(before))):
        order = before["asked"][row]
        console.print(before_and_after(order, before["answer"][row], after["answer"][row]))
    _show_credit(runs[0], console)
    numbers = {run.method: {"reward": run.rewards(), "held_out": rates[run.method].to_dict()} for run in runs}
    write_atomically(folder / "results.json", json.dumps({"runs": numbers}, indent=2))
    console.print(f"Numbers: {folder / 'results.json'}", highlight=False, soft_wrap=True)


def field_rates(rates: pd.DataFrame, label: str, n: int) -> Table:
    """Those shares as a table with intervals."""
    table = Table(
        title=f"{label}: right fields of {n} held-out orders",
        caption="95% Wilson intervals; other words than in training",
        box=SIMPLE_HEAD,
    )
    table.add_column("field")
    for when in rates:
        table.add_column(when, justify="right")
    for field in FIELDS:
        table.add_row(field, *(_rate(share, n) for share in rates.loc[field]))
    table.add_section()
    table.add_row("mean of the six", *(f"{share:.0%}" for share in rates.loc[list(FIELDS)].mean()))
    for name, key in CHECKS.items():
        table.add_row(name, *(_rate(share, n) for share in rates.loc[key]))
    return table


def _rate(share: float, n: int) -> str:
    low, high = wilson(share, n)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def before_and_after(order: str, before: str, after: str) -> Padding:
    """An order with its reference and the two answers, the place of each right or wrong field in its colour."""
    table = _labelled(order)
    table.add_row("before", judged_text(before, order))
    table.add_row("after", judged_text(after, order))
    return _below(table)


def judged_text(answer: str, order: str) -> Text:
    """An answer on one line, its fields coloured, with its count of right fields and the names of the wrong ones."""
    styles = ["default"] * len(answer)
    spans = _fields(answer, order)
    for span in spans:
        if span.start is not None:
            styles[span.start : span.end] = [GOOD if span.reward else BAD] * (span.end - span.start)
    text = Text.assemble(*zip(map(_on_one_line, answer), styles, strict=True))
    wrong = [span.name for span in spans if not span.reward]
    return text.append(f"\n{len(FIELDS) - len(wrong)} of 6 right" + (f"; wrong: {', '.join(wrong)}" if wrong else ""))


def _fields(text: str, order: str) -> list[SpanReward]:
    """The six fields of an answer."""
    (spans,) = json_fields([text], truth=[references()[order]])
    return [span for span in spans if span.name in FIELDS]


def _show_credit(run: Run, console: Console) -> None:
    """Print credit by token in the group that a run recorded in which most fields differ."""
    group = max((own for own in all_groups(run.folder) if order_of(own) in references()), key=parted)
    title = f"Credit in some of the {len(group.ids)} answers to an order of step {group.step}"
    console.print(Text(title, style="italic"))
    console.print("blue: more likely from now on, orange: less, grey: as before; bold: much", style="dim")
    console.print(credit_of(group, run.label))


def all_groups(folder: Path) -> list[Group]:
    """All groups that a run recorded in training."""
    return [group for step in recorded_steps(folder) for group in recorded_groups(folder, step)]


def order_of(group: Group) -> str:
    """The order that the completions of a group answer: the last line of their prompt."""
    return group.prompt.rpartition("\n")[2].removeprefix("user: ")


def parted(group: Group) -> float:
    """In how many fields the completions of a group differ, times the share of them that are readable JSON."""
    found = checks(list(map(_text, group.tokens)), [order_of(group)] * len(group.tokens))
    return float((found[list(FIELDS)].nunique() > 1).sum() * found["json"].mean())


def credit_of(group: Group, label: str) -> Padding:
    """
    Completions of a group, from that with most right fields to that with fewest, each twice: in the colours of the
    credit that GRPO with the same rewards gives to its tokens, and of the method's.
    """
    grpo = outcome_advantages(torch.from_numpy(group.rewards), len(group.rewards)).numpy()
    table, scale = _labelled(order_of(group)), np.abs(np.concatenate(group.advantages)).max(initial=0.0) or 1.0
    for row in shown_completions(group):
        pieces, own = group.tokens[row], group.advantages[row]
        same = in_colours_of(pieces, np.full(len(own), grpo[row]), np.abs(grpo).max() or 1.0)
        by_field = ", ".join(f"{name} {credit:+.2f}" for name, credit in field_credit(group, row).items())
        table.add_row("", "")
        table.add_row(GRPO, same.append(f"\n{grpo[row]:+.2f} on every token"))
        table.add_row(label, in_colours_of(pieces, own, scale).append(f"\n{by_field}"))
    return _below(table)


def in_colours_of(pieces: Sequence[str], credit: np.ndarray, scale: float) -> Text:
    """Tokens in the colours of their credit; bold above 0.6 `scale`."""
    styles = (("bold " if abs(own) > 0.6 * scale else "") + credit_colour(own) for own in credit)
    return Text.assemble(*zip(map(_on_one_line, readable(pieces)), styles, strict=True))


def _on_one_line(piece: str) -> str:
    """A part of a text, with symbols for what is invisible and for line breaks."""
    return visible(piece).replace("\n", "⏎").replace("\t", "⇥")


def shown_completions(group: Group) -> list[int]:
    """Rows of completions with different texts, from most right fields to fewest, evenly spread."""
    texts = list(map(_text, group.tokens))
    right = checks(texts, [order_of(group)] * len(texts))[list(FIELDS)].sum(axis=1)
    rows = sorted({texts.index(text) for text in texts}, key=lambda row: (-right[row], row))
    return spread(rows, SHOWN_COMPLETIONS)


def field_credit(group: Group, row: int) -> dict[str, float]:
    """The recorded advantage of each field of a completion that was judged."""
    recorded = {span.name: span.advantage for span in group.spans[row]}
    return {name: recorded[name] for name in FIELDS if recorded.get(name) is not None}


def _text(pieces: Sequence[str]) -> str:
    return "".join(readable(pieces))


def _labelled(order: str) -> Table:
    """A table of labels and what they stand before, with an order and its reference as the first ones."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("order", Text(order, style="bold"))
    table.add_row("reference", Text(references()[order]))
    return table


def _below(table: Table) -> Padding:
    return Padding(table, (0, 0, 1, 2))
