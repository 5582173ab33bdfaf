"""Statistics over seeds: interquartile means, bootstrap bands, and times to an accuracy as ratios to a baseline.

Intervals resample seeds, with a percentile bootstrap at 95%. With five seeds an interval is coarse. A single seed has
none: its ends are NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.learning.curves import Curve

RESAMPLES, SEED = 4000, 0


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: a quarter of the values, rounded down, is cut on each side. Of five, the middle three."""
    return stats.trim_mean(np.asarray(values, dtype=float), 0.25, axis=axis)


def interval(*samples: np.ndarray, statistic: Callable[..., np.ndarray] = iqm) -> tuple[np.ndarray, np.ndarray]:
    """
    Interval of a statistic over seeds.

    Args:
        samples (`np.ndarray` of shape `(seeds, ...)`):
            A number a seed, or a curve. Several samples are paired: a resampled seed is taken from all of them.
        statistic (`Callable`, *optional*):
            Of `(*samples, axis)`.

    Returns:
        `(low, high)`, each of the shape of the statistic; NaN where there is one seed.
    """
    samples = tuple(np.asarray(sample, dtype=float) for sample in samples)
    if len(samples[0]) < 2:
        return (np.full(samples[0].shape[1:], np.nan),) * 2
    rng = np.random.default_rng(SEED)
    options = {"n_resamples": RESAMPLES, "paired": len(samples) > 1, "method": "percentile", "random_state": rng}
    return tuple(stats.bootstrap(samples, statistic, axis=0, **options).confidence_interval)


def mean_accuracy(curve: Curve, tokens: float) -> float:
    """Mean height of the curve from 0 to `tokens` generated ones: its area over its width."""
    cut = curve.at(tokens)
    at = np.append(curve.tokens[curve.tokens < tokens], tokens)
    return float(np.trapezoid(cut.value, at) / tokens)


@dataclass(frozen=True)
class Ratio:
    """
    A method's tokens or seconds to an accuracy over the baseline's.

    Args:
        value, low, high (`float`, *optional*):
            Ratio of the interquartile means and its interval; None where neither arrived with all seeds.
        sign (`str`):
            `"="`; `">"` where some runs of the method never arrived, and count as if they had at their budget's end;
            `"<"` where some of the baseline's did not; `"?"` where both had such runs.
        reached, baseline_reached, seeds (`int`):
            Runs that arrived.
    """

    value: float | None
    low: float | None
    high: float | None
    sign: str
    reached: int
    baseline_reached: int
    seeds: int

    def __str__(self) -> str:
        counts = "" if self.sign == "=" else f" ({self.reached}, {self.baseline_reached} of {self.seeds})"
        if self.value is None:
            return f"never{counts}"
        interval = "" if np.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.sign.replace('=', '')}{self.value:.2f}{interval}{counts}"


def ratio_to(
    own: Sequence[Curve], baseline: Sequence[Curve], level: float, tokens: float, unit: str = "tokens"
) -> Ratio:
    """
    The [`Ratio`] at `level`, of runs that are pairs (same start, same seed) and generated `tokens` each.

    Resampled seeds take both of a pair. `unit` is what passes until then: `"tokens"` or `"seconds"`.
    """
    ours, theirs = (np.array([_arrival(c, level, tokens, unit) for c in runs]) for runs in (own, baseline))
    arrived = [np.isfinite(runs[:, 0]) for runs in (ours, theirs)]
    counts = int(arrived[0].sum()), int(arrived[1].sum()), len(own)
    late, base_late = counts[0] < counts[2], counts[1] < counts[2]
    if late and base_late:
        return Ratio(None, None, None, "?", *counts)
    times = [np.where(at, runs[:, 0], runs[:, 1]) for at, runs in zip(arrived, (ours, theirs), strict=True)]
    low, high = interval(*times, statistic=ratio_of_iqms)
    sign = ">" if late else "<" if base_late else "="
    return Ratio(float(ratio_of_iqms(*times, axis=0)), float(low), float(high), sign, *counts)


def _arrival(curve: Curve, level: float, tokens: float, unit: str) -> tuple[float, float]:
    """When the curve reached the level, NaN if not in its budget; and when its budget ended."""
    if unit == "seconds":
        cut = curve.at(tokens)
        reached, end, least = cut.time_to(level, "seconds"), float(cut.seconds[-1]), 1e-3
    else:
        reached, end, least = curve.time_to(level, "tokens"), tokens, 1.0
    return (np.nan if reached is None or reached > end else max(reached, least)), end


def ratio_of_iqms(ours: np.ndarray, theirs: np.ndarray, axis: int) -> np.ndarray:
    """Ratio of two interquartile means."""
    return iqm(ours, axis) / iqm(theirs, axis)
