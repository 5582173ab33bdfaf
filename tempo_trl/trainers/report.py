"""What ranks tell each other about a batch, in one report: errors, sums and columns for the log, statistics."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from tempo_trl.credit.advantages import credit_sums
from tempo_trl.credit.anchors import state_sums
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.prefix_tree import tree_sums
from tempo_trl.credit.spans import Criteria
from tempo_trl.runs.criteria import criteria_text, spans_of
from tempo_trl.runs.metrics import CRITERIA
from tempo_trl.trainers.scored_rows import ScoredRows

Sums = dict[str, tuple[float, float]]  # numerators and denominators of metrics, by name


class Totals(NamedTuple):
    """
    The reports of all ranks together. Every rank has the same.

    Args:
        metrics: Ratios of the sums, by name.
        columns: Columns of the table of completions, in rank order.
        statistics: What a method with a state learns from, of each rank.
        drops_tokens: Whether tokens are removed from the loss, so that all ranks must count its tokens again.
    """

    metrics: dict[str, float]
    columns: dict[str, list]
    statistics: list
    drops_tokens: bool


class Report:
    """
    What one rank reports of a batch. The user's functions and the method add to it, until all ranks meet.

    The first error of the user's functions is kept until then, because the others wait for this rank's rows.

    Args:
        rank (`int`):
            This rank, for the message.
    """

    def __init__(self, rank: int):
        self._rank = rank
        self._failure: tuple[str, bool] | None = None  # a message, and whether a function returned something invalid
        self.cause: Exception | None = None
        self.sums: Sums = {}
        self.columns: dict[str, list] = {}  # of the table of completions, with a value per row of this rank
        self._pickled, self._drops_tokens = b"", False

    @contextmanager
    def keeps_errors_of(self, name: str) -> Iterator[None]:
        """Ends the block at an error, and keeps the error. `name` is what the user calls the function."""
        try:
            yield
        except Exception as error:
            if self.cause is None:
                invalid = isinstance(error, ValueError)
                what = f"failed: {error}" if invalid else f"raised {type(error).__name__}: {error}"
                self.cause, self._failure = error, (f"{name} {what} (on rank {self._rank})", invalid)

    def add(self, sums: Sums, columns: dict[str, list]) -> None:
        """Add sums, and columns of the table of completions."""
        entries = chain(self.sums.items(), sums.items())
        self.sums = summed((str(name), float(total), float(count)) for name, (total, count) in entries)
        self.columns |= columns

    def add_credit(self, credit: Credit, criteria: Criteria | None) -> None:
        """Add the credit of this rank's rows, and of the `criteria` that were judged in them."""
        self.add(credit.metrics, {})
        if criteria is not None:
            self.columns[CRITERIA] = [criteria_text(spans) for spans in spans_of(criteria, credit.criteria)]
        self._pickled = pickle.dumps(credit.statistics)  # here, so that an error has its rank
        self._drops_tokens = credit.loss_mask is not None

    def over_ranks(self, rows: int) -> Totals:
        """
        The reports of all ranks, of `rows` rows each. Every rank must call this for every batch.

        Raises:
            ValueError: on every rank, if a function of the user's returned something invalid on one of them.
            RuntimeError: on every rank, if it raised any other error.
        """
        own = (self._failure, self.sums, self.columns, self._pickled, self._drops_tokens)
        failures, sums, columns, pickled, drops_tokens = zip(*gather_object([own]), strict=True)
        for message, invalid in filter(None, failures):
            raise (ValueError if invalid else RuntimeError)(message) from self.cause
        of_all = summed((name, *own) for own_sums in sums for name, own in own_sums.items())
        ratios = {name: numerator / denominator for name, (numerator, denominator) in of_all.items() if denominator}
        names = dict.fromkeys(name for own in columns for name in own)  # of which some ranks may have none
        joined = {name: [value for own in columns for value in own.get(name, [None] * rows)] for name in names}
        return Totals(ratios, joined, [*map(pickle.loads, pickled)], any(drops_tokens))


def summed(entries: Iterable[tuple[str, float, float]]) -> Sums:
    """Sums of numerators and denominators by name."""
    sums: Sums = {}
    for name, numerator, denominator in entries:
        before = sums.get(name, (0.0, 0.0))
        sums[name] = before[0] + numerator, before[1] + denominator
    return sums


def log_credit(trainer: GRPOTrainer, batch: Batch, rows: ScoredRows, credit: Credit, totals: Totals) -> Sums:
    """
    Log `tempo/*`, `rollout/*` and the method's own metrics, and add the advantages to the table of completions.

    Every rank must call this. Returns numerators and denominators of `tempo/*`, summed over all ranks.
    """
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, value in totals.metrics.items():
        metrics[name].append(value)
    for name, values in totals.columns.items():
        trainer._logs["extra"][name].extend(values)
    if batch.tree_rollouts is not None:
        log_sums(trainer, "rollout", trainer.rollout_func.statistics())
    mask = rows.loss_mask if credit.loss_mask is None else rows.loss_mask * credit.loss_mask.to(rows.loss_mask)
    counted = batch.counted_groups
    flat = batch.flat_groups[counted]
    shares, sums = credit_sums(credit.reference, credit.added, mask.cpu()), {}
    if batch.num_generations > 1:  # a group of 1, which evaluation allows, has no tree
        sums = tree_sums(batch.tree, counted) | {"frac_zero_std": (flat.sum().item(), len(flat))}
    sums |= {name: tuple(rows.sum(dim=0).tolist()) for name, rows in shares.items()}
    if trainer.sees_answers:
        sums |= state_sums(batch.seen_before_turns, batch.num_generations, batch.counted)
    totals_of_tempo = log_sums(trainer, "tempo", sums)
    advantages = rows.output["advantages"].view(len(mask), -1)
    mean_advantage = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    columns = {name: r[:, 0] / r[:, 1].where(r[:, 1] > 0, 1.0) for name, r in shares.items()}
    _log_table(trainer, mean_advantage, columns)
    return totals_of_tempo


def log_sums(trainer: GRPOTrainer, prefix: str, sums: Sums) -> Sums:
    """
    Log `{prefix}/{name}` as the ratio of two sums over all ranks, and return the sums.

    Every rank must call this with the same names. A metric whose denominator is 0 is not logged, for example the depth
    of branches if there are none.
    """
    device = trainer.accelerator.device
    totals = trainer.accelerator.reduce(torch.tensor(list(sums.values()), device=device), reduction="sum").tolist()
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, (numerator, denominator) in zip(sums, totals, strict=True):
        if denominator:
            metrics[f"{prefix}/{name}"].append(numerator / denominator)
    return dict(zip(sums, map(tuple, totals), strict=True))


def _log_table(trainer: GRPOTrainer, advantages: torch.Tensor, columns: dict[str, torch.Tensor]) -> None:
    """Replace the advantages in the rows that TRL has just added to its table, and add `(B,)` columns to them."""
    own = torch.stack([advantages, *(column.to(advantages.device) for column in columns.values())], dim=1)
    rows = trainer.accelerator.gather(own).T.tolist()
    scalar = trainer._logs["advantages"]  # contains GRPO's advantages
    for _ in range(min(len(rows[0]), len(scalar))):
        scalar.pop()
    scalar.extend(rows[0])
    for name, values in zip(columns, rows[1:], strict=True):
        trainer._logs["extra"][name].extend(values)
