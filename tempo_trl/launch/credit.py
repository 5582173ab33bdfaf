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

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from tempo_trl import SpanCreditConfig, TEMPOConfig
from tempo_trl.credit.advantages import outcome_advantages, prefix_values
from tempo_trl.credit.batch import Batch, checked
from tempo_trl.credit.spans import Criteria, criteria_of
from tempo_trl.methods.span_credit import span_credit
from tempo_trl.methods.tempo import tempo_credit
from tempo_trl.report.collect import RecordedRun
from tempo_trl.report.command import write_report
from tempo_trl.report.completion_file import CompletionFile
from tempo_trl.report.group import Group, padded, terms_of
from tempo_trl.report.page import headline
from tempo_trl.report.terminal_tree import criteria_table, group_tree, token_table, turn_table
from tempo_trl.runs.criteria import spans_of


def main(completions: str, tokenizer: str | None, groups: int, output: str | None, **settings) -> int:
    """
    Print trees and credit of the completions in a file, write the report if requested, return the exit status.

    `settings` are those of [`read_groups`].

    Raises:
        ValueError: from [`read_groups`].
    """
    path = Path(completions)
    found = read_groups(path, tokenizer, **settings)
    inside = RecordedRun(path.name, "credit", [])
    inside.read("train", [found], [0])
    console = Console()
    shown = found[: max(groups, 0)]
    for group in shown:
        table = criteria_table(group) if group.terms.of_places else token_table(group)
        for part in filter(None, [group_tree(group), table, turn_table(group)]):
            console.print(part)
    if hidden := len(found) - len(shown):
        console.print(f"{hidden} more groups. Print all with --groups {len(found)}.", highlight=False)
    line = headline(inside.summary)
    console.print(f"\n{line['number']}{line['words']}\n{line['facts']}", highlight=False, markup=False)
    if output:
        page = write_report([inside], path.name, Path(output))
        print(f"Report: {page}   pictures: {page.with_suffix('')}/*.png and *.svg")
    return 0


def read_groups(path: Path, tokenizer: str | None = None, **settings) -> list[Group]:
    """
    Read the groups of a JSONL file of completions, and compute their credit as in training.

    Args:
        path (`Path`): The file, as described at the top of this module.
        tokenizer (`str`, *optional*): Name on the Hub or folder; needed for text, and to show ids as text.
        settings: Fields of [`TEMPOConfig`], or of [`SpanCreditConfig`] if the file has `spans`: `scale_rewards`,
            `td_coef`, `trace_lambda`.

    Returns:
        List of [`~tempo_trl.report.group.Group`], in the order of their first lines; groups may differ in size.

    Raises:
        ValueError: a line has another format, a text comes without a tokenizer, or a setting is invalid.
    """
    file = CompletionFile(path, tokenizer)
    lines = file.read()
    config = _config(SpanCreditConfig if "criteria" in lines[0] else TEMPOConfig, settings)
    by_group: dict[str, list[dict]] = {}
    for line in lines:
        by_group.setdefault(line["asked"], []).append(line)
    rows = [line for own in by_group.values() for line in own]
    criteria, begin, groups = _criteria(rows), 0, []
    rewards = criteria.mean_reward() if criteria and "reward" not in rows[0] else _rewards(rows)
    for number, own in enumerate(by_group.values()):
        place = slice(begin, begin := begin + len(own))
        batch = _batch(own, rewards[place], rewards, criteria and _of_rows(criteria, place), config.scale_rewards)
        groups.append(_group(number, own, batch, config, file))
    return groups


def _config(config_class: type, settings: dict):
    """The configuration of the method, which checks its settings."""
    try:
        return config_class(output_dir="unused", use_cpu=True, bf16=False, activation_checkpointing=False, **settings)
    except TypeError as error:  # of another method's field
        raise ValueError(f"{error}. A file with `spans` has span credit, any other TEMPO's. Leave it out.") from error


def _rewards(rows: Sequence[dict]) -> torch.Tensor:
    return torch.tensor([math.nan if row["reward"] is None else float(row["reward"]) for row in rows])


def _criteria(rows: Sequence[dict]) -> Criteria | None:
    """The criteria of all completions; None if the file has none."""
    if "criteria" not in rows[0]:
        return None
    judged = [row["criteria"] for row in rows]
    most = max([1, *(len(places) for found in judged for _, places in found.values())])
    return criteria_of(judged, {name: 1.0 for found in judged for name in found}, most)


def _of_rows(every: Criteria, own: slice) -> Criteria:
    parts = {name: getattr(every, name)[own] for name in ("rewards", "starts", "ends")}
    return every._replace(**parts, all_rewards=every.rewards)


def _batch(
    rows: Sequence[dict], rewards: torch.Tensor, all_rewards: torch.Tensor, criteria: Criteria | None, scale: str
) -> Batch:
    """A group as training would have it. Scale `"batch"` is taken over the whole file."""
    size, ids = len(rows), [row["ids"] for row in rows]
    turns = padded([row.get("turns", [0] * len(row["ids"])) for row in rows], torch.long, -1)
    outcome = outcome_advantages(rewards, size, scale, all_rewards).float()
    return Batch(
        completion_ids=padded(ids, torch.long),
        lengths=torch.tensor([len(row) for row in ids]),
        rewards=rewards,
        rewards_per_func=rewards[:, None],
        advantages=outcome,
        outcome=outcome,
        num_generations=size,
        prompts=torch.zeros(size, dtype=torch.long),
        loss_mask=turns >= 0,
        turns=turns,
        steps=turns,
        counted=torch.ones(size, dtype=torch.bool),
        criteria=criteria,
    )


def _group(number: int, rows: Sequence[dict], batch: Batch, config, file: CompletionFile) -> Group:
    if batch.criteria is None:
        method, credit = "tempo", tempo_credit(batch, config.td_coef)
    else:
        with_outcome = "reward" in rows[0]
        method, credit = "span_credit", span_credit(batch, config.trace_lambda, config.scale_rewards, with_outcome)
    credit, ids = checked(credit, batch), [row["ids"] for row in rows]
    advantages = credit.advantages.view(len(rows), -1).expand_as(credit.added)
    values = prefix_values(batch.completion_ids, batch.lengths, batch.rewards, len(rows))

    def per_token(matrix: torch.Tensor, more: int = 0) -> list:
        return [own[: len(row) + more].numpy() for own, row in zip(matrix, ids, strict=True)]

    return Group(
        step=0,
        group=number,
        prompt=rows[0]["prompt"],
        ids=ids,
        tokens=[file.pieces(row) for row in ids],
        values=per_token(values, 1),
        td_errors=per_token(credit.added),
        advantages=per_token(advantages),
        entropies=None,
        loss_mask=per_token(batch.loss_mask),
        outcome=batch.advantages.nan_to_num().numpy(),
        rewards=batch.rewards.numpy(),
        terms=terms_of(method),
        turns=per_token(batch.turns),
        calls=[row.get("calls", [""]) for row in rows],
        observed=[row.get("observed", [""]) for row in rows],
        spans=spans_of(batch.criteria, credit.criteria) if batch.criteria else [],
        trace_lambda=getattr(config, "trace_lambda", 0.0),
    )
