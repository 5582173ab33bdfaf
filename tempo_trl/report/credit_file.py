"""`tempo-trl credit`: tree and credit of completions from a JSONL file, sampled by any program.

Each line is a completion. The lines of a prompt may be in any order:

    {"prompt": "7+5-3?", "completion": "7+5=2;2-3=9#9", "reward": 1.0}

`prompt` is text, a list of token ids, or a list of messages, and so is `completion`: its messages are assistant
messages with `tool_calls`, and the tool messages that answer them. `reward` is a number, or null if there is no score.
The tokenizer's EOS token is appended to a text, unless the line has `"truncated": true`. `group`, a number or a name,
separates groups with the same prompt.

A line may have `spans`, rewards that say where: `[{"name": "sum", "reward": 1, "start": 0, "end": 5}]`. Start and end
count characters of a text, or token ids; without them a criterion has no place. The credit of such a file is span
credit. With `reward` in its lines both add, as in [`SpanCreditTrainer`]; without any, `reward` is the criteria's mean.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tempo_trl.credit.advantages import outcome_advantages, prefix_values, td_errors
from tempo_trl.credit.anchors import key_of, observation_keys, state_labels
from tempo_trl.credit.spans import TRACE_LAMBDA, Criteria, criteria_of, criterion_advantages, span_advantages
from tempo_trl.credit.state_graph import graph_td_errors
from tempo_trl.report.collect import RecordedRun
from tempo_trl.report.command import write_report
from tempo_trl.report.completion_file import CompletionFile
from tempo_trl.report.credit_terms import terms_of
from tempo_trl.report.group import Group, padded
from tempo_trl.report.sentences import honest_line
from tempo_trl.report.terminal_tree import credit_colour, criteria_tables, group_tree, turn_tables
from tempo_trl.runs.criteria import spans_of
from tempo_trl.runs.token_text import around, one_line, readable

LISTED = 12  # number of tokens listed for a group, largest |TD| first
CONTEXT = 30  # characters before and after such a token


def main(completions: str, tokenizer: str | None, groups: int, output: str | None, **settings) -> int:
    """
    Print trees and credit of the completions in a file, write the report if requested, return the exit status.

    `settings` are the others of [`read_groups`].

    Raises:
        ValueError: from [`read_groups`].
    """
    path = Path(completions)
    found = read_groups(path, tokenizer, **settings)
    inside = RecordedRun(path.name, "credit", [])
    inside.read("train", [found], [0])
    _print(found, groups, inside)
    if output:
        page = write_report([inside], path.name, Path(output))
        print(f"Report: {page}   pictures: {page.with_suffix('')}/*.png and *.svg")
    return 0


def read_groups(
    path: Path,
    tokenizer: str | None = None,
    scale_rewards: str = "group",
    td_coef: float = 1.0,
    merge_states: bool = False,
    observation_key_func: Callable[[str], str] | None = None,
    trace_lambda: float = TRACE_LAMBDA,
) -> list[Group]:
    """
    Read the groups of a JSONL file of completions, and compute their credit.

    Args:
        path (`Path`): The file, as described at the top of this module.
        tokenizer (`str`, *optional*): Name on the Hub or folder; needed for text, and to show ids as text.
        scale_rewards (`str`, *optional*, defaults to `"group"`): As in [`~tempo_trl.credit.tempo_advantages`].
        td_coef (`float`, *optional*, defaults to `1.0`): Coefficient of the TD error.
        merge_states (`bool`, *optional*, defaults to `False`): Whether completions that have just seen the same answer
            of a tool share a state, as in [`TEMPOConfig`].
        observation_key_func (`Callable[[str], str]`, *optional*): What identifies the state in the text of an answer.
            Defaults to its tokens.
        trace_lambda (`float`, *optional*, defaults to `0.9`): Decay of span credit before a place, as in
            [`SpanCreditConfig`].

    Returns:
        List of [`~tempo_trl.report.group.Group`], in the order of their first lines; groups may differ in size.

    Raises:
        ValueError: a line has another format, a text comes without a tokenizer, or a setting is invalid.
    """
    if not 0.0 <= td_coef < math.inf:
        raise ValueError(
            f"`td_coef` must be a finite number of at least 0, got {td_coef!r}. The paper uses 1; 0 is GRPO."
        )
    file = CompletionFile(path, tokenizer)
    lines = file.read()
    if observation_key_func is not None:
        lines = [line | {"keys": [*map(observation_key_func, line.get("observed", [])[1:])]} for line in lines]
    has_spans = any("spans" in line for line in lines)
    _refuse_settings_of_other_credit(has_spans, td_coef, merge_states, trace_lambda)
    by_group: dict[tuple, list[dict]] = {}
    for line in lines:
        by_group.setdefault((line["prompt"], json.dumps(line.get("group"))), []).append(line)
    outcomes = _outcomes(list(by_group.values()), scale_rewards)
    groups = [
        _group(i, rows, outcome, file.pieces, td_coef, merge_states)
        for i, (rows, outcome) in enumerate(zip(by_group.values(), outcomes, strict=True))
    ]
    return _of_spans(groups, list(by_group.values()), scale_rewards, trace_lambda) if has_spans else groups


def _refuse_settings_of_other_credit(has_spans: bool, td_coef: float, merge_states: bool, trace_lambda: float) -> None:
    if has_spans and (td_coef != 1.0 or merge_states):
        raise ValueError("`td_coef` and `merge_states` are TEMPO's, but the file has `spans`. Leave both out.")
    if trace_lambda != TRACE_LAMBDA and not has_spans:
        raise ValueError(f"`trace_lambda` is for `spans`, which no line has, got {trace_lambda!r}. Leave it out.")


def _of_spans(
    groups: Sequence[Group], lines: Sequence[Sequence[dict]], scale_rewards: str, trace_lambda: float
) -> list[Group]:
    """The groups with span credit instead of TEMPO's, and with the criteria of their lines."""
    judged = [line["criteria"] for rows in lines for line in rows]
    names = {name: 1.0 for found in judged for name in found}
    most = max([1, *(len(places) for found in judged for _, places in found.values())])
    every, sizes = criteria_of(judged, names, most), [len(rows) for rows in lines]
    parts = (own.split(sizes) for own in (every.rewards, every.starts, every.ends))
    credited = []
    for group, rows, rewards, starts, ends in zip(groups, lines, *parts, strict=True):
        criteria = every._replace(rewards=rewards, starts=starts, ends=ends, all_rewards=every.rewards)
        credited.append(_with_criteria(group, criteria, rows[0]["has_outcome"], scale_rewards, trace_lambda))
    return credited


def _with_criteria(
    group: Group, criteria: Criteria, has_outcome: bool, scale_rewards: str, trace_lambda: float
) -> Group:
    lengths, size = torch.tensor([len(row) for row in group.ids]), len(group.ids)
    places = criteria.rewards, criteria.starts, criteria.ends, lengths
    scale = {"scale_rewards": scale_rewards, "all_rewards": criteria.all_rewards}
    tokens = span_advantages(*places, int(lengths.max()), size, **scale, trace_lambda=trace_lambda).numpy()
    outcome = group.outcome if has_outcome else np.zeros_like(group.outcome)
    advantages = [tokens[i, : len(row)] + outcome[i] for i, row in enumerate(group.ids)]
    return replace(
        group,
        advantages=advantages,
        td_errors=[row - group.outcome[i] for i, row in enumerate(advantages)],
        terms=terms_of("span_credit", ""),
        spans=spans_of(criteria, criterion_advantages(criteria.rewards, size, **scale)),
        trace_lambda=trace_lambda,
    )


def _states(rows: Sequence[dict], ids: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Key of what was seen before each turn, `(R, N)`; 0 where a row has no such turn."""
    keys = observation_keys(ids, turns, torch.zeros(len(rows), dtype=torch.int64))
    for own, row in zip(keys, rows, strict=True):
        for n, key in enumerate(row.get("keys", ()), start=1):
            own[n] = key_of(0, b"text" + key.encode())
    return keys


def _rewards(rows: Sequence[dict]) -> torch.Tensor:
    return torch.tensor([math.nan if row["reward"] is None else float(row["reward"]) for row in rows])


def _outcomes(groups: Sequence[Sequence[dict]], scale_rewards: str) -> list[torch.Tensor]:
    """GRPO's advantages of groups of any size; NaN without a score. Scale `"batch"` is taken over the whole file."""
    every = torch.cat([_rewards(rows) for rows in groups])
    return [outcome_advantages(_rewards(rows), len(rows), scale_rewards, every) for rows in groups]


def _group(
    number: int, rows: Sequence[dict], outcome: torch.Tensor, pieces: Callable, td_coef: float, merge_states: bool
) -> Group:
    ids, rewards = [row["ids"] for row in rows], _rewards(rows)
    lengths, size = torch.tensor([len(row) for row in ids]), len(ids)
    matrix = padded(ids, torch.long)
    turns = padded([row.get("turns", [0] * len(row["ids"])) for row in rows], torch.long, -1)
    keys = _states(rows, matrix, turns)
    # V is a mean, so TD errors of outcome advantages are those of the rewards in the advantages' units.
    if merge_states:
        td = graph_td_errors(matrix, lengths, turns, state_labels(keys, size)[0], outcome.float(), size)
    else:
        td = td_errors(prefix_values(matrix, lengths, outcome.float(), size), lengths).masked_fill(turns < 0, 0.0)
    td[rewards.isnan()] = 0.0
    values = prefix_values(matrix, lengths, rewards, size)
    outcome = outcome.float().nan_to_num()
    own = [td[i, : len(row)] for i, row in enumerate(ids)]
    return Group(
        step=0,
        group=number,
        prompt=rows[0]["prompt"],
        ids=ids,
        tokens=[pieces(row) for row in ids],
        values=[values[i, : len(row) + 1].numpy() for i, row in enumerate(ids)],
        td_errors=[row.numpy() for row in own],
        advantages=[(outcome[i] + td_coef * row).numpy() for i, row in enumerate(own)],
        entropies=None,
        loss_mask=[(turns[i, : len(row)] >= 0).numpy() for i, row in enumerate(ids)],
        outcome=outcome.numpy(),
        rewards=rewards.numpy(),
        turns=[turns[i, : len(row)].numpy() for i, row in enumerate(ids)],
        states=[row[row != 0].tolist() for row in keys],
        calls=[row.get("calls", [""]) for row in rows],
        observed=[row.get("observed", [""]) for row in rows],
    )


def _print(groups: Sequence[Group], shown: int, inside: RecordedRun) -> None:
    console = Console()
    for group in groups[: max(shown, 0)]:
        console.print(group_tree(group))
        credit = criteria_tables(group, console) if group.terms.of_places else [_deciding_tokens(group)]
        for table in [*credit, *turn_tables(group, console)]:
            console.print(table)
    if len(groups) > shown:
        console.print(f"{len(groups) - shown} more groups. Print all with --groups {len(groups)}.", highlight=False)
    line = honest_line(None, inside.summary)
    console.print(f"\n{line['head']} {line['words']}", highlight=False, markup=False)


def _deciding_tokens(group: Group) -> Table:
    """The tokens of a group with the largest TD errors, shared ones once, with GRPO's and TEMPO's advantages."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("completion", "token", "TD", "GRPO", "TEMPO"):
        table.add_column(heading, justify="left" if heading == "token" else "right")
    places = [(i, int(t)) for i, td in enumerate(group.td_errors) for t in np.flatnonzero(td)]
    seen: set[tuple] = set()
    for i, t in sorted(places, key=lambda place: -abs(group.td_errors[place[0]][place[1]])):
        state = tuple(group.ids[i][: t + 1])
        if state in seen or len(seen) == LISTED:
            continue
        seen.add(state)
        td, gives = group.td_errors[i][t], group.advantages[i][t]
        numbers = (Text(f"{td:+.2f}", style=credit_colour(td)), f"{group.outcome[i]:+.2f}", f"{gives:+.2f}")
        table.add_row(str(i + 1), _in_context(readable(group.tokens[i]), t), *numbers)
    return table


def _in_context(pieces: Sequence[str], t: int) -> Text:
    before, after = around(pieces, t, CONTEXT)
    text = Text(before, style="grey62").append(one_line(pieces[t]), style="bold default reverse")
    return text.append(after)
