"""Results of runs of `sums`: accuracy curves, and the difference of two methods with its interval."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from tempo_trl.runs.curves import Curve, read_curve
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import read_recipe, recipe_path
from tempo_trl.runs.statistics import student_interval

RECIPES = "sums"
# All recipes of the folder share these values (tests/test_recipes.py).
_RECIPE = read_recipe(recipe_path(f"{RECIPES}/tempo"))
GROUP = _RECIPE["num_generations"]
MAX_LENGTH = _RECIPE["max_completion_length"]
MAX_STEPS = _RECIPE["max_steps"]
UPDATES_PER_GENERATION = _RECIPE["steps_per_generation"] // _RECIPE["gradient_accumulation_steps"]
ROWS = _RECIPE["per_device_train_batch_size"] * _RECIPE["steps_per_generation"]  # completions of a generation


def accuracy_curve(folder: Path, rows: int = ROWS, group: int = GROUP) -> Curve:
    """
    Accuracy curve of a run, resumed or not: the share of right answers to held-out problems, sampled at temperature 1.

    Its tokens come from [`sampled_tokens`].
    """
    log = training_log(folder)
    curve, sampled = read_curve(log, "eval_reward"), sampled_tokens(log, rows, group)
    tokens = [sum(count for at, count in sampled.items() if at <= step) for step in curve.steps]
    return replace(curve, tokens=np.array(tokens, dtype=float))


def sampled_tokens(log: list[dict], rows: int = ROWS, group: int = GROUP) -> dict[int, float]:
    """Tokens of each generation, by the step of their entry in TRL's `log_history`; shared tokens of trees count once.

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

    With two or more seeds this is Student's interval over the seeds, which covers the variation between runs. With one
    seed it only covers the noise of sampling `n` answers per run.
    """
    pairs = np.array([(a.value[-1], b.value[-1]) for a, b in zip(ours, baseline, strict=True)])
    differences = pairs[:, 0] - pairs[:, 1]
    mean, low, high = student_interval(differences)
    if len(differences) == 1:
        half = stats.norm.ppf(0.975) * np.sqrt((pairs * (1 - pairs)).sum() / n)
        low, high = mean - half, mean + half
    return float(mean), float(low), float(high)
