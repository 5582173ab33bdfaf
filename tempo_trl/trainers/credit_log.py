"""What ranks tell each other about a batch's credit: errors, and metrics and columns for the log."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from tempo_trl.credit.anchors import state_sums
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.metrics import credit_sums, tree_sums
from tempo_trl.runs.criteria import criteria_text, spans_of
from tempo_trl.runs.metrics import CRITERIA
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask
from tempo_trl.trainers.span_rewards import SpanScores
from tempo_trl.trainers.step_rewards import StepScores


class Failures:
    """
    The first error of the user's functions on a batch. It is kept until all ranks meet, because the others wait for
    this rank's rows.

    Args:
        rank (`int`):
            This rank, for the message.
    """

    def __init__(self, rank: int):
        self._rank = rank
        self.cause: Exception | None = None
        self.first: tuple[str, bool] | None = None  # a message, and whether a function returned something invalid

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Ends the block at an error, and keeps the error. `name` is what the user calls the function."""
        try:
            yield
        except Exception as error:
            if self.cause is None:
                invalid = isinstance(error, ValueError)
                what = f"failed: {error}" if invalid else f"raised {type(error).__name__}: {error}"
                self.cause, self.first = error, (f"{name} {what} (on rank {self._rank})", invalid)


class RankReport(NamedTuple):
    """
    The report of one rank.

    Args:
        failure: Error message of a function that failed on this rank, and whether its return value was invalid.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        statistics: Data from which a method with a state learns, pickled here so that a pickling error has its rank.
        drops_tokens: Whether tokens are removed from the loss, so that all ranks must count its tokens again.
        columns: Columns of the table of completions, with a value per row of this rank.
    """

    failure: tuple[str, bool] | None = None
    metrics: dict[str, tuple[float, float]] = {}
    statistics: bytes = b""
    drops_tokens: bool = False
    columns: dict[str, list] = {}

    @classmethod
    def of(cls, credit: Credit, scores: list[StepScores | SpanScores]) -> "RankReport":
        """The report of a rank whose functions succeeded. `scores` are those of functions that reward a place."""
        known = {name: sums for own in scores for name, sums in own.metrics.items()} | credit.metrics
        metrics = {str(name): (float(total), float(count)) for name, (total, count) in known.items()}
        columns = {name: values for own in scores for name, values in own.columns.items()}
        for own in scores:
            if isinstance(own, SpanScores):
                columns[CRITERIA] = [criteria_text(spans) for spans in spans_of(own.criteria, credit.criteria)]
        return cls(None, metrics, pickle.dumps(credit.statistics), credit.loss_mask is not None, columns)


def gather_reports(own: RankReport, failures: Failures) -> list[RankReport]:
    """
    The reports of all ranks, in rank order. Every rank must call this for every batch.

    Raises:
        ValueError: on every rank, if a function of the user's returned something invalid on one of them.
        RuntimeError: on every rank, if it raised any other error.
    """
    reports = gather_object([own._replace(failure=failures.first)])
    for report in reports:
        if report.failure is not None:
            message, wrong = report.failure
            raise (ValueError if wrong else RuntimeError)(message) from failures.cause
    return reports


def summed_metrics(reports: list[RankReport]) -> dict[str, float]:
    """Ratios of the sums over ranks. Metrics whose denominator is 0 are left out."""
    sums: dict[str, list[float]] = {}
    for report in reports:
        for name, (numerator, denominator) in report.metrics.items():
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += numerator
            total[1] += denominator
    return {name: numerator / denominator for name, (numerator, denominator) in sums.items() if denominator}


def joined_columns(reports: list[RankReport], rows: int) -> dict[str, list]:
    """Columns of the table of completions in rank order. A rank without a column has None in each of its `rows`."""
    names = dict.fromkeys(name for report in reports for name in report.columns)
    return {name: [v for report in reports for v in report.columns.get(name, [None] * rows)] for name in names}


def log_credit(
    trainer: GRPOTrainer, batch: Batch, rows: ScoredRows, credit: Credit, reports: list[RankReport]
) -> dict[str, tuple[float, float]]:
    """
    Log `tempo/*`, `rollout/*` and the method's own metrics, and add the advantages to the table of completions.

    Every rank must call this. Returns numerators and denominators of `tempo/*`, summed over all ranks.
    """
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, value in summed_metrics(reports).items():
        metrics[name].append(value)
    for name, values in joined_columns(reports, len(rows.inputs)).items():
        trainer._logs["extra"][name].extend(values)
    if batch.tree_rollouts is not None:
        log_sums(trainer, "rollout", trainer.rollout_func.statistics())
    outcome = whole_advantages(batch, rows, credit)
    mask = loss_mask(rows.output)
    sums = {}
    if batch.num_generations > 1:  # a group of 1, which evaluation allows, has no tree
        flat = batch.flat_groups[batch.counted_groups]
        sums = tree_sums(batch.tree, batch.counted_groups) | {"frac_zero_std": (flat.sum().item(), len(flat))}
    shares = credit_sums(outcome, credit.added, mask.cpu())
    sums |= {name: tuple(rows.sum(dim=0).tolist()) for name, rows in shares.items()}
    if trainer.sees_answers:
        sums |= state_sums(batch.observations, batch.num_generations, batch.counted)
    totals = log_sums(trainer, "tempo", sums)
    advantages = rows.output["advantages"].view(len(mask), -1)
    mean_advantage = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    columns = {name: r[:, 0] / r[:, 1].where(r[:, 1] > 0, 1.0) for name, r in shares.items()}
    _log_table(trainer, mean_advantage, columns)
    return totals


def whole_advantages(batch: Batch, rows: ScoredRows, credit: Credit) -> torch.Tensor:
    """The advantage of each of this rank's completions, `(B,)`, rewards per turn included, that TD errors add to."""
    whole = credit.sequence_advantages
    if batch.step_rewards is None or whole is None:
        whole = batch.advantages[rows.place.own]
    return whole.float().nan_to_num(0.0)


def log_sums(
    trainer: GRPOTrainer, prefix: str, sums: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
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


def keep_added_share(metrics: dict[str, list[float]]) -> None:
    """Log a share of 0 while all groups are flat: nothing is credited then, and nobody should miss the metric."""
    if metrics.get("tempo/frac_zero_std") and not metrics.get("tempo/added_share"):
        metrics["tempo/added_share"].append(0.0)


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
