"""What the demonstration's runs measured: accuracy curves, and the comparison of two methods with its uncertainty."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from tempo_trl.demo.recipe import UPDATES_PER_GENERATION
from tempo_trl.runs.log import training_log
from tempo_trl.runs.statistics import student_interval


@dataclass(frozen=True)
class Curve:
    """
    Accuracy of one run, sampled at temperature 1 on the held-out problems.

    Args:
        generations, seconds, accuracy (`np.ndarray` of shape `(evaluations,)`):
            Generations before each evaluation, seconds of training until then (evaluation not counted), and the share
            of right answers.
    """

    method: str
    seed: int
    generations: np.ndarray
    seconds: np.ndarray
    accuracy: np.ndarray


def read_curve(method: str, seed: int, folder: Path) -> Curve:
    """The accuracy curve that a run's `trainer_state.json` holds, resumed or not."""
    points, seconds = {}, 0.0
    for entry in training_log(folder):
        seconds += entry.get("step_time", 0.0)
        if "eval_reward" in entry:
            points.setdefault(entry["step"], (entry["step"] / UPDATES_PER_GENERATION, seconds, entry["eval_reward"]))
    return Curve(method, seed, *np.array(list(points.values())).T)


def wilson(accuracy: float, n: int) -> tuple[float, float]:
    """95% interval of an accuracy measured on `n` samples."""
    interval = stats.binomtest(round(accuracy * n), n).proportion_ci(method="wilson")
    return interval.low, interval.high


def time_to(curve: Curve, level: float, unit: str) -> float | None:
    """Generations or seconds until the curve first reaches `level`, linear between evaluations; None if never."""
    reached = np.flatnonzero(curve.accuracy >= level)
    if not len(reached):
        return None
    i, clock = reached[0], getattr(curve, unit)
    if i == 0:
        return float(clock[0])
    return float(np.interp(level, curve.accuracy[i - 1 : i + 1], clock[i - 1 : i + 1]))


def difference(ours: list[Curve], baseline: list[Curve], n: int) -> tuple[float, float, float]:
    """
    Mean difference of the final accuracies of paired runs (same start, same seed) and its 95% interval.

    From two seeds on the interval is Student's, over the seeds: it holds what varies from run to run. With one seed
    there is no such thing to measure, and it holds the noise of sampling `n` answers a run only.
    """
    pairs = np.array([(a.accuracy[-1], b.accuracy[-1]) for a, b in zip(ours, baseline, strict=True)])
    differences = pairs[:, 0] - pairs[:, 1]
    mean, low, high = student_interval(differences)
    if len(differences) == 1:
        half = stats.norm.ppf(0.975) * np.sqrt((pairs * (1 - pairs)).sum() / n)
        low, high = mean - half, mean + half
    return float(mean), float(low), float(high)
