"""Learning curves of the compared runs against steps, tokens and time, their bands over seeds, and who was faster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from tempo_trl.compare.table import BASELINE
from tempo_trl.runs.compared_runs import ComparedRun, groups

METRICS = {"reward": "mean reward in training", "eval_reward": "mean reward in evaluation"}
CLOCKS = {
    "steps": "steps",
    "tokens": "tokens, prompts and completions",
    "seconds": "seconds of training steps",
}
SMOOTHED = 20  # a reward in training is averaged over the last 1/20 of its curve's points


@dataclass(frozen=True)
class Curve:
    """
    One metric of one run.

    Args:
        steps, tokens, seconds (`np.ndarray` of shape `(points,)`):
            Optimizer steps, tokens of the prompts and completions that were sampled, and seconds of training steps
            (sampling is in them, evaluation and saving are not) until each point; NaN where the log does not tell.
        value (`np.ndarray` of shape `(points,)`):
            The metric.
    """

    steps: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class MethodCurve:
    """
    What the runs of a method come to.

    Args:
        runs: Their curves, as logged.
        mean: Mean of the smoothed curves, on the steps that all of them reached.
        low, high (`np.ndarray` of shape `(points,)`): The 95% band of the mean; NaN for one run.
    """

    model: str | None
    trained_on: str | None
    method: str
    metric: str
    runs: list[Curve]
    mean: Curve
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Speed:
    """
    When a method first had the baseline's best.

    Args:
        level: The best of the baseline's mean curve.
        baseline, method: Steps, tokens and seconds until then, by clock; those of `method` None if it never had it.
    """

    curve: MethodCurve
    against: MethodCurve
    level: float
    baseline: dict[str, float]
    method: dict[str, float] | None

    def ratio(self, clock: str) -> float | None:
        """How many times as long the baseline took, by this clock."""
        ours, theirs = (self.method or {}).get(clock), self.baseline[clock]
        return theirs / ours if ours and np.isfinite(theirs / ours) else None


def read_curve(log: Sequence[dict], metric: str) -> Curve | None:
    """
    The curve of `metric` in Trainer's `log_history`; None if it was not logged.

    TRL logs `num_tokens` as a running total, when it samples, and `step_time` as the mean over the steps since the
    entry before.
    """
    points, tokens, seconds, last = {}, float("nan"), 0.0, 0
    for entry in log:
        step = entry.get("step", last)
        tokens = entry.get("num_tokens") or tokens
        if "reward" in entry or "step_time" in entry:
            seconds += (entry.get("step_time") or float("nan")) * (step - last)
            last = step
        if entry.get(metric) is not None:
            points.setdefault(step, (step, tokens if step else 0.0, seconds, entry[metric]))  # not what ends a run
    return Curve(*np.array(list(points.values()), dtype=float).T) if points else None


def method_curves(runs: Sequence[ComparedRun]) -> list[MethodCurve]:
    """A curve for each method and each metric that it logged, runs without a log passed over."""
    found = []
    for metric in METRICS:
        for (model, trained_on, method), own in groups(runs).items():
            curves = [curve for run in own if (curve := read_curve(run.log, metric))]
            if curves:
                found.append(
                    MethodCurve(model, trained_on, method, metric, curves, *band([smooth(c, metric) for c in curves]))
                )
    return found


def band(curves: Sequence[Curve], confidence: float = 0.95) -> tuple[Curve, np.ndarray, np.ndarray]:
    """
    Mean over runs at each step, and Student's interval of that mean over them.

    Curves are interpolated to the union of their steps, between the last beginning and the first end: where only some
    runs have points, a mean would jump. One run tells nothing of how runs vary: its band is NaN. With two runs the
    interval is wide (12.7 standard errors), as it should be.

    Returns:
        `(mean, low, high)`, of shape `(points,)`.
    """
    begin, end = max(c.steps[0] for c in curves), min(c.steps[-1] for c in curves)
    grid = np.unique(np.concatenate([c.steps for c in curves]))
    grid = grid[(grid >= begin) & (grid <= end)]
    if not len(grid):  # one run ended before the other's first point
        grid = np.array([end])
    tokens, seconds, values = (
        np.array([np.interp(grid, c.steps, getattr(c, name)) for c in curves])
        for name in ("tokens", "seconds", "value")
    )
    mean = values.mean(axis=0)
    half = np.full_like(mean, np.nan)
    if len(curves) > 1:
        half = stats.t.ppf((1 + confidence) / 2, len(curves) - 1) * stats.sem(values, axis=0)
    return Curve(grid, tokens.mean(axis=0), seconds.mean(axis=0), mean), mean - half, mean + half


def smooth(curve: Curve, metric: str) -> Curve:
    """A reward in training averaged over the last points, since its highest is otherwise that of its easiest batch."""
    window = max(1, len(curve.value) // SMOOTHED) if metric == "reward" else 1
    means = [curve.value[max(0, end - window) : end].mean() for end in range(1, len(curve.value) + 1)]
    return replace(curve, value=np.array(means))


def speeds(curves: Sequence[MethodCurve]) -> list[Speed]:
    """Each method against the baseline of the same model, task and metric: GRPO, or the method named first."""
    found = []
    for setting in dict.fromkeys((c.model, c.trained_on, c.metric) for c in curves):
        own = [c for c in curves if (c.model, c.trained_on, c.metric) == setting]
        against = next((c for c in own if c.method == BASELINE), own[0])
        found += [speed(curve, against) for curve in own if curve is not against]
    return found


def speed(curve: MethodCurve, against: MethodCurve) -> Speed:
    """Find the baseline's best and the first point at which the method's mean curve is at least there."""
    best = int(against.mean.value.argmax())
    level = float(against.mean.value[best])
    reached = np.flatnonzero(curve.mean.value >= level)
    ours = _clocks(curve.mean, reached[0]) if len(reached) else None
    return Speed(curve, against, level, _clocks(against.mean, best), ours)


def _clocks(curve: Curve, i: int) -> dict[str, float]:
    return {clock: float(getattr(curve, clock)[i]) for clock in CLOCKS}
