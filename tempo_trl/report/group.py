"""A recorded group: G completions of one prompt with their credit, its tree, its turns and its method's terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch.nn.utils.rnn import pad_sequence

from tempo_trl.methods import method_label
from tempo_trl.report.folded_tree import FoldedNode, fold, labelled
from tempo_trl.runs.criteria import Span
from tempo_trl.runs.trees import read_metadata, read_trees, trees_path

QUANTILE = 0.95  # of |credit|, which has the darkest colour
MAX_TEXT = 600  # characters of an observation that are kept


class CreditTerms(NamedTuple):
    """
    The terms of one method.

    Args:
        label: Name of the method.
        added: What it adds to GRPO's advantage, in a heading or between bars: `|TD|`.
        more, less: Labels of tokens to which it added a positive or a negative number.
        of_places: Whether its credit lies on the places of criteria: it is then the advantage itself that is shown.
    """

    label: str
    added: str = "added"
    more: str = "more than GRPO"
    less: str = "less than GRPO"
    of_places: bool = False


def terms_of(method: str, label: str = "") -> CreditTerms:
    """The terms of a method, by its name in the table of methods. An empty label is replaced by the table's."""
    label = label or method_label(method)
    if method == "tempo":
        return CreditTerms(label, "TD", "V rose", "V fell")
    if method == "span_credit":
        return CreditTerms(label, "credit", "above 0", "below 0", of_places=True)
    return CreditTerms(label)


@dataclass(frozen=True)
class Group:
    """
    A recorded group, G completions of one prompt, with the columns of [`~tempo_trl.runs.trees`].

    Args:
        step, group: Step at which it was sampled, and its index in the batch.
        prompt: The prompt's text.
        ids, tokens: Token ids and their texts, G lists of T_i.
        values: Prefix values, G arrays of T_i + 1, in units of the rewards.
        td_errors, advantages: G arrays of T_i, in units of the advantages.
        entropies: G arrays of T_i in nats, or None.
        loss_mask: G arrays of T_i, bool.
        outcome: Array of G, in units of the advantages; 0 where a completion is unscorable.
        rewards: Array of G; NaN where a completion is unscorable.
        terms: The terms of the method that computed `td_errors` and `advantages`.
        turns: G arrays of T_i, the turn of each token.
        calls, observed: G lists of N_i, one entry per turn.
        spans: G lists of judged criteria with their places; empty if none were recorded.
        trace_lambda: Decay per token of a criterion's credit before its place.
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
    terms: CreditTerms
    turns: list[np.ndarray]
    calls: Sequence[list[str]]
    observed: Sequence[list[str]]
    spans: Sequence[list[Span]] = ()
    trace_lambda: float = 0.0

    @property
    def credit(self) -> list[np.ndarray]:
        """The credit to rank tokens by: the advantages where they lie on places, what the method adds elsewhere."""
        return self.advantages if self.terms.of_places else self.td_errors

    @cached_property
    def nodes(self) -> list[FoldedNode]:
        """Its folded prefix tree, laid out."""
        return fold(self.ids)

    @cached_property
    def tree(self) -> list[FoldedNode]:
        """The same, labelled with texts, values and TD errors."""
        return labelled(self.nodes, self.tokens, lambda node: float(self.values[node.rows[0]][node.end]))


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


def changes(values: np.ndarray) -> np.ndarray:
    """Positions at which a run of equal values begins."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.zeros(0, dtype=int)


def credit_scale(group: Group) -> tuple[float, float]:
    """
    The credit that the darkest colour stands for, and the largest one, which is as dark.

    The first is the 95% quantile of |credit|, so that one large advantage does not leave all others pale. Equal credit
    of neighbouring tokens counts once, and 0 not at all: few tokens have other credit than the outcome in a tree.
    """
    rows = [np.where(trained, own, 0.0) for own, trained in zip(group.advantages, group.loss_mask, strict=True)]
    sizes = np.abs(np.concatenate([*(row[changes(row)] for row in rows), group.outcome]))
    sizes = sizes[sizes > 0]
    return (float(np.quantile(sizes, QUANTILE)), float(sizes.max())) if len(sizes) else (1.0, 1.0)


def padded(rows: Sequence, dtype: torch.dtype, value: int = 0) -> torch.Tensor:
    """Rows of any lengths as a matrix, padded with a value."""
    tensors = [torch.tensor(np.asarray(row), dtype=dtype) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value)


def reward_range(groups: Sequence[Group]) -> tuple[float, float]:
    """The lowest and the highest reward of some groups; zeros if no completion was scored."""
    rewards = np.concatenate([group.rewards for group in groups]) if groups else np.zeros(0)
    rewards = rewards[~np.isnan(rewards)]
    return (float(rewards.min()), float(rewards.max())) if len(rewards) else (0.0, 0.0)


def middle_of(low: float, high: float) -> float:
    """The middle of a range of rewards, above which a completion is right; 0 where all rewards are equal."""
    return (low + high) / 2 if high > low else 0.0


def is_right(reward: float, low: float, high: float) -> bool:
    """Whether a reward is above the middle of its range by more than the rounding of float32."""
    return reward - middle_of(low, high) > 1e-6


def recorded_groups(run_dir: str | Path, step: int, mode: str = "train") -> list[Group]:
    """
    The groups that a run recorded at a step of training, or of evaluation (`"eval"`, or `"eval_NAME"`).

    Raises:
        ValueError: nothing was recorded at this step, or its file is broken.
    """
    path = trees_path(run_dir, mode, step)
    try:
        trees, metadata = read_trees(run_dir, [step], mode), read_metadata(path)
        return groups_of(trees, terms_of(metadata["method"], metadata["credit"]), float(metadata["trace_lambda"]))
    except (pa.ArrowInvalid, KeyError) as error:
        raise ValueError(f"{path} is no whole file of recorded trees: {error}. Remove it.") from error


def groups_of(trees: pd.DataFrame, terms: CreditTerms, trace_lambda: float = 0.0) -> list[Group]:
    """The groups in a frame from [`~tempo_trl.report.read_trees`], in order."""
    by_place = trees.groupby(["step", "group"], sort=True)
    return [_group(*place, rows, terms, trace_lambda) for place, rows in by_place]


def _group(step: int, group: int, rows: pd.DataFrame, terms: CreditTerms, trace_lambda: float) -> Group:
    lists = {name: rows[name].tolist() for name in rows.columns}
    return Group(
        step=int(step),
        group=int(group),
        prompt=lists["prompt"][0],
        ids=[row.tolist() for row in lists["completion_ids"]],
        entropies=None if any(row is None for row in lists["entropies"]) else lists["entropies"],
        outcome=np.array(lists["outcome"], dtype=float),
        rewards=np.array(lists["reward"], dtype=float),
        terms=terms,
        spans=[[Span(**span) for span in row] for row in lists["spans"] if row is not None],
        trace_lambda=trace_lambda,
        **{name: lists[name] for name in ("values", "td_errors", "advantages", "loss_mask", "turns")},
        **{name: [row.tolist() for row in lists[name]] for name in ("tokens", "calls", "observed")},
    )
