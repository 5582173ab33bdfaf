"""Learning curves of the compared runs: the mean with its band per method, and speed relative to the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tempo_trl.compare.table import BASELINE
from tempo_trl.runs.compared_runs import ComparedRun, groups
from tempo_trl.runs.curves import Curve, band, read_curve

METRICS = {"reward": "mean reward in training", "eval_reward": "mean reward in evaluation"}
CLOCKS = {
    "steps": "steps",
    "tokens": "tokens, prompts and completions",
    "seconds": "seconds of training steps",
}
SMOOTHED = 20  # training rewards are averaged over the last 1/20 of the curve's points


@dataclass(frozen=True)
class MethodCurve:
    """
    The learning curve of a method over its runs.

    Args:
        runs: Their curves, as logged.
        mean: Mean of the smoothed curves, over the steps that all runs reached.
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

    @property
    def setting(self) -> dict[str, str | None]:
        return {name: getattr(self, name) for name in ("model", "trained_on", "method", "metric")}

    @property
    def numbers(self) -> dict:
        """The entry of this curve in compare.json."""
        mean = vars(self.mean) | {"low": self.low, "high": self.high}
        return self.setting | {"mean": mean, "runs": list(map(vars, self.runs))}


def method_curves(runs: Sequence[ComparedRun]) -> list[MethodCurve]:
    """A curve for each method and each metric that it logged. Runs without a log are skipped."""
    found = []
    for metric in METRICS:
        for setting, own in groups(runs).items():
            curves = [curve for run in own if (curve := read_curve(run.log, metric))]
            if curves:
                found.append(MethodCurve(*setting, metric, curves, *band([smooth(c, metric) for c in curves])))
    return found


def smooth(curve: Curve, metric: str) -> Curve:
    """The curve, with training rewards averaged over the last points, because single batches are too noisy."""
    window = max(1, len(curve.value) // SMOOTHED) if metric == "reward" else 1
    means = [curve.value[max(0, end - window) : end].mean() for end in range(1, len(curve.value) + 1)]
    return replace(curve, value=np.array(means))


def speeds(curves: Sequence[MethodCurve]) -> list[dict]:
    """Each method's speed relative to the baseline of the same model, task and metric: GRPO, or the first method."""
    found = []
    for setting in dict.fromkeys((c.model, c.trained_on, c.metric) for c in curves):
        own = [c for c in curves if (c.model, c.trained_on, c.metric) == setting]
        against = next((c for c in own if c.method == BASELINE), own[0])
        found += [speed(curve, against) for curve in own if curve is not against]
    return found


def speed(curve: MethodCurve, against: MethodCurve) -> dict:
    """
    The baseline's best value, `level`, and the first points at which the two mean curves reach it.

    `baseline_at` and `method_at` are steps, tokens and seconds by clock; `method_at` is None if the method never
    reached the level. `times_as_fast` is the ratio of the two, None if unknown.
    """
    best = int(against.mean.value.argmax())
    level = float(against.mean.value[best])
    reached = np.flatnonzero(curve.mean.value >= level)
    theirs, ours = _clocks(against.mean, best), _clocks(curve.mean, reached[0]) if len(reached) else None
    ratios = {clock: theirs[clock] / ours[clock] if ours and ours[clock] else np.nan for clock in CLOCKS}
    return curve.setting | {
        "baseline": against.method,
        "level": level,
        "baseline_at": theirs,
        "method_at": ours,
        "times_as_fast": {clock: ratio if np.isfinite(ratio) else None for clock, ratio in ratios.items()},
    }


def _clocks(curve: Curve, i: int) -> dict[str, float]:
    return {clock: float(getattr(curve, clock)[i]) for clock in CLOCKS}
