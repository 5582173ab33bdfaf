"""What the demonstration's runs measured: accuracy curves, and the comparison of two methods with its uncertainty."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from tempo_trl.demo.recipe import GROUP, ROWS
from tempo_trl.runs.curves import Curve, read_curve
from tempo_trl.runs.log import training_log
from tempo_trl.runs.statistics import student_interval


def accuracy_curve(folder: Path, rows: int = ROWS, group: int = GROUP) -> Curve:
    """
    Accuracy of a run, resumed or not: the share of right answers to the held-out problems, sampled at temperature 1.

    Its tokens are those of [`sampled_tokens`].
    """
    log = training_log(folder)
    curve, sampled = read_curve(log, "eval_reward"), sampled_tokens(log, rows, group)
    tokens = [sum(count for at, count in sampled.items() if at <= step) for step in curve.steps]
    return replace(curve, tokens=np.array(tokens, dtype=float))


def sampled_tokens(log: list[dict], rows: int = ROWS, group: int = GROUP) -> dict[int, float]:
    """Tokens of each generation, by the step that logged them in TRL's `log_history`; a tree's shared ones count once.

    A generation has `rows` completions, in groups of `group`.
    """
    sampled = {}
    for entry in log:
        if "rollout/generated_tokens" in entry:
            sampled[entry["step"]] = rows // group * entry["rollout/generated_tokens"]
        elif "completions/mean_length" in entry:
            sampled[entry["step"]] = rows * entry["completions/mean_length"]
    return sampled


def wilson(accuracy: float, n: int) -> tuple[float, float]:
    """95% interval of an accuracy measured on `n` samples."""
    interval = stats.binomtest(round(accuracy * n), n).proportion_ci(method="wilson")
    return interval.low, interval.high


def difference(ours: list[Curve], baseline: list[Curve], n: int) -> tuple[float, float, float]:
    """
    Mean difference of the final accuracies of paired runs (same start, same seed) and its 95% interval.

    From two seeds on the interval is Student's, over the seeds: it holds what varies from run to run. With one seed
    there is no such thing to measure, and it holds the noise of sampling `n` answers a run only.
    """
    pairs = np.array([(a.value[-1], b.value[-1]) for a, b in zip(ours, baseline, strict=True)])
    differences = pairs[:, 0] - pairs[:, 1]
    mean, low, high = student_interval(differences)
    if len(differences) == 1:
        half = stats.norm.ppf(0.975) * np.sqrt((pairs * (1 - pairs)).sum() / n)
        low, high = mean - half, mean + half
    return float(mean), float(low), float(high)
