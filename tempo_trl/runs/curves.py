"""Learning curves of runs: read from Trainer's log, averaged over seeds, drawn for a model card."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tempo_trl.runs.statistics import student_interval

PANELS = {
    "tempo/added_share": "added share of credit",
    "completions/mean_length": "mean length, tokens",
}


def mean_rewards(logs: Iterable[Sequence[dict]]) -> list[str]:
    """The mean rewards in Trainer's logs: `reward`, and `eval_reward`, or `eval_NAME_reward` of each dataset."""
    names = {name for log in logs for entry in log for name in entry if re.fullmatch("(eval_(.+_)?)?reward", name)}
    return sorted(names, key=lambda name: (name != "reward", name))


class Curve(NamedTuple):
    """One metric of one run: its value after a number of optimizer steps. Both arrays have the shape `(points,)`."""

    steps: np.ndarray
    value: np.ndarray


def read_curve(log: Sequence[dict], metric: str) -> Curve | None:
    """
    The curve of `metric` in Trainer's `log_history`; None if it was not logged.

    A value that is not a number is no point: rewards of a step that no function could score. Of several values of a
    step the last one counts, such as the evaluation of the weights that a run ends with.
    """
    logged = ((entry.get("step", 0), entry.get(metric)) for entry in log)
    points = {step: value for step, value in logged if value is not None and np.isfinite(value)}
    return Curve(*np.array([*points.items()], dtype=float).T) if points else None


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
    mean, low, high = student_interval(np.array([np.interp(grid, c.steps, c.value) for c in curves]))
    return Curve(grid, mean), low, high


def curves_png(log: list[dict]) -> bytes | None:
    """PNG with a panel for each mean reward and metric of `PANELS` in a log, against steps; None without any."""
    from matplotlib.figure import Figure

    panels = {name: f"mean {name}" for name in mean_rewards([log])} | PANELS
    found = {title: curve for metric, title in panels.items() if (curve := read_curve(log, metric))}
    if not found:
        return None
    figure = Figure(figsize=(3.2 * len(found), 2.6), layout="constrained")
    for axes, (title, curve) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        marker = "." if len(curve.steps) < 20 else ""
        axes.plot(curve.steps, curve.value, color="#0072B2", linewidth=1.5, marker=marker)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    image = io.BytesIO()
    figure.savefig(image, dpi=120, format="png", metadata={"Software": None})  # the same bytes every time
    return image.getvalue()
