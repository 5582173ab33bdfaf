"""What the ranks tell each other about a batch's credit, so that all of them go on or stop together."""

import pickle
from typing import NamedTuple

from accelerate.utils import gather_object

from tempo_trl.credit.prefix_covariance import PairStatistics
from tempo_trl.trainers.batch import Credit


class RankReport(NamedTuple):
    """
    One rank's part.

    Args:
        failure: Message of a credit function that failed on this rank, and whether what it returned was wrong.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        statistics: What a method with a memory learns from, pickled: what cannot be is an error on this rank alone.
        pairs: What the covariance of prefixes learns from.
        drops_tokens: Whether tokens leave the loss, which all ranks then count again.
    """

    failure: tuple[str, bool] | None = None
    metrics: dict[str, tuple[float, float]] = {}
    statistics: bytes = b""
    pairs: PairStatistics | None = None
    drops_tokens: bool = False

    @classmethod
    def of(cls, credit: Credit, pairs: PairStatistics | None) -> "RankReport":
        """That of a rank whose credit is there."""
        metrics = {str(name): (float(total), float(count)) for name, (total, count) in credit.metrics.items()}
        return cls(None, metrics, pickle.dumps(credit.statistics), pairs, credit.loss_mask is not None)


def failure_of(error: Exception, name: str, rank: int) -> tuple[str, bool]:
    """What to say of a credit function that raised, or returned something wrong."""
    wrong = isinstance(error, ValueError)
    what = f"failed: {error}" if wrong else f"raised {type(error).__name__}: {error}"
    return f"`credit_func` {name} {what} (on rank {rank})", wrong


def gather_reports(own: RankReport, cause: Exception | None = None) -> list[RankReport]:
    """
    The reports of all ranks, in their order. Every rank calls this for every batch.

    Raises:
        ValueError: on every rank, if a credit function returned something wrong on one.
        RuntimeError: on every rank, if it raised anything else.
    """
    reports = gather_object([own])
    for report in reports:
        if report.failure is not None:
            message, wrong = report.failure
            raise (ValueError if wrong else RuntimeError)(message) from cause
    return reports


def summed_metrics(reports: list[RankReport]) -> dict[str, float]:
    """Ratios of the sums over ranks; what has nothing to divide by is left out."""
    sums: dict[str, list[float]] = {}
    for report in reports:
        for name, (numerator, denominator) in report.metrics.items():
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += numerator
            total[1] += denominator
    return {name: numerator / denominator for name, (numerator, denominator) in sums.items() if denominator}
