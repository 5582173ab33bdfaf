"""Reports that ranks exchange about a batch's credit, so that all of them continue or stop together."""

import pickle
from typing import NamedTuple

from accelerate.utils import gather_object

from tempo_trl.credit.level_covariance import PairStatistics
from tempo_trl.runs.criteria import criteria_text, spans_of
from tempo_trl.trainers.batch import Credit
from tempo_trl.trainers.failures import Failures
from tempo_trl.trainers.logged_names import CRITERIA
from tempo_trl.trainers.span_rewards import SpanScores
from tempo_trl.trainers.step_rewards import StepScores


class RankReport(NamedTuple):
    """
    The report of one rank.

    Args:
        failure: Error message of a function that failed on this rank, and whether its return value was invalid.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        statistics: Data from which a method with a state learns, pickled here so that a pickling error has its rank.
        pairs: Data from which the covariance of prefixes learns.
        drops_tokens: Whether tokens are removed from the loss, so that all ranks must count its tokens again.
        columns: Columns of the table of completions, with a value per row of this rank.
    """

    failure: tuple[str, bool] | None = None
    metrics: dict[str, tuple[float, float]] = {}
    statistics: bytes = b""
    pairs: PairStatistics | None = None
    drops_tokens: bool = False
    columns: dict[str, list] = {}

    @classmethod
    def of(cls, credit: Credit, pairs: PairStatistics | None, scores: list[StepScores | SpanScores]) -> "RankReport":
        """The report of a rank whose functions succeeded. `scores` are those of functions that reward a place."""
        known = {name: sums for own in scores for name, sums in own.metrics.items()} | credit.metrics
        metrics = {str(name): (float(total), float(count)) for name, (total, count) in known.items()}
        columns = {name: values for own in scores for name, values in own.columns.items()}
        for own in scores:
            if isinstance(own, SpanScores):
                columns[CRITERIA] = [criteria_text(spans) for spans in spans_of(own.criteria, credit.criteria)]
        return cls(None, metrics, pickle.dumps(credit.statistics), pairs, credit.loss_mask is not None, columns)


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
