"""What the ranks tell each other about a batch's credit, so that all of them go on or stop together."""

from typing import Any, NamedTuple

from accelerate.utils import gather_object

from tempo_trl.credit.prefix_covariance import PairStatistics


class RankReport(NamedTuple):
    """
    One rank's part.

    Args:
        failure: Message of a credit function that failed on this rank, and whether what it returned was wrong.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        statistics: What a method with a memory learns from.
        pairs: What the covariance of prefixes learns from.
    """

    failure: tuple[str, bool] | None
    metrics: dict[str, tuple[float, float]]
    statistics: Any
    pairs: PairStatistics | None


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
            total[0] += float(numerator)
            total[1] += float(denominator)
    return {name: numerator / denominator for name, (numerator, denominator) in sums.items() if denominator}
