"""Learning curves of runs: read from Trainer's log, averaged over seeds, drawn for a model card."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tempo_trl.methods import METHODS
from tempo_trl.runs.statistics import student_interval

PANELS = {
    "reward": "mean reward",
    "eval_reward": "mean reward, evaluation",
    "tempo/added_share": "added share of credit",
    "completions/mean_length": "mean length, tokens",
}


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


def band(curves: Sequence[Curve]) -> tuple[Curve, np.ndarray, np.ndarray]:
    """
    Mean over runs at each step, and Student's 95% interval of that mean.

    Curves are interpolated to the union of their steps, within the range that all runs cover, because a mean over
    changing sets of runs would jump. The band of a single run is NaN.

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
    mean, low, high = student_interval(values)
    return Curve(grid, tokens.mean(axis=0), seconds.mean(axis=0), mean), low, high


def curves_png(log: list[dict]) -> bytes | None:
    """PNG with a panel for each metric of `PANELS` that was logged, against steps; None if none was logged."""
    from matplotlib.figure import Figure

    found = {title: curve for metric, title in PANELS.items() if (curve := read_curve(log, metric))}
    if not found:
        return None
    figure = Figure(figsize=(3.2 * len(found), 2.6), layout="constrained")
    for axes, (title, curve) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        marker = "." if len(curve.steps) < 20 else ""
        axes.plot(curve.steps, curve.value, color=METHODS["tempo"].colour, linewidth=1.5, marker=marker)
        axes.set(title=title, xlabel="step")
        axes.title.set_fontsize("medium")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, dpi=120, format="png", metadata={"Software": None})  # the same bytes every time
    return image.getvalue()
