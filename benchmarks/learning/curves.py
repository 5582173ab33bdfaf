"""Learning curves of a study's runs, by sampled tokens and by seconds of training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Curve:
    """
    One metric of one run.

    Args:
        steps, tokens, seconds (`np.ndarray` of shape `(points,)`):
            Optimizer steps, tokens of the sampled prompts and completions, and seconds of training steps (with
            sampling, without evaluation and saving) until each point; NaN if not logged.
        value (`np.ndarray` of shape `(points,)`):
            The metric.
    """

    steps: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    value: np.ndarray

    def at(self, tokens: float) -> "Curve":
        """The curve up to a number of tokens; its last point is interpolated between two logged ones."""
        kept = self.tokens < tokens
        return Curve(*(np.append(own[kept], np.interp(tokens, self.tokens, own)) for own in vars(self).values()))

    def time_to(self, level: float, clock: str) -> float | None:
        """Steps, tokens or seconds until the curve first reaches `level`, linear between points; None if never."""
        reached, time = np.flatnonzero(self.value >= level), getattr(self, clock)
        if not len(reached):
            return None
        i = reached[0]
        return float(np.interp(level, self.value[i - 1 : i + 1], time[i - 1 : i + 1]) if i else time[0])


def read_curve(log: Sequence[dict], metric: str) -> Curve | None:
    """
    The curve of `metric` in Trainer's `log_history`; None if it was not logged.

    TRL logs `num_tokens` as a running total when it samples, and `step_time` as the mean over the steps since the
    previous entry. A value that is not a number is no point: rewards of a step that no function could score.
    """
    points, tokens, seconds, last = {}, float("nan"), 0.0, 0
    for entry in log:
        step = entry.get("step", last)
        tokens = entry.get("num_tokens") or tokens
        if "reward" in entry or "step_time" in entry:
            seconds += (entry.get("step_time") or float("nan")) * (step - last)
            last = step
        if entry.get(metric) is not None and np.isfinite(entry[metric]):
            points.setdefault(step, (step, tokens if step else 0.0, seconds, entry[metric]))  # not what ends a run
    return Curve(*np.array(list(points.values()), dtype=float).T) if points else None
