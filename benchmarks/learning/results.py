"""Results of a study's runs: curves read from disk, and all numbers of its table, figure and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.learning.arms import BASELINE, Arm, Study
from benchmarks.learning.curves import Curve, read_curve
from benchmarks.learning.runs import DONE, Run
from benchmarks.learning.statistics import Ratio, interval, iqm, mean_accuracy, ratio_to
from tempo_trl.runs.log import training_log

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
UNITS = ("tokens", "seconds")
GRID = 41  # points of a curve
DIGITS = 6  # in the JSON: with five, a ratio in the tables rounds differently


def read_run(run: Run) -> Curve:
    """The share of right answers to held-out problems in a finished run, by its sampled tokens."""
    log = training_log(run.folder)
    curve, sampled = read_curve(log, "eval_reward"), sampled_tokens(log, run.rows, run.group)
    tokens = [sum(count for at, count in sampled.items() if at <= step) for step in curve.steps]
    return replace(curve, tokens=np.array(tokens, dtype=float))


def sampled_tokens(log: list[dict], rows: int, group: int) -> dict[int, float]:
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


@dataclass(frozen=True)
class Measured:
    """A number with its interval over seeds, and that of each seed."""

    iqm: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        low, high = interval(np.array(values))
        return cls(float(iqm(values)), float(low), float(high), tuple(float(value) for value in values))

    def percent(self, signed: bool = False) -> str:
        mean = f"{100 * self.iqm:{'+' if signed else ''}.1f}"
        return mean if np.isnan(self.low) else f"{mean} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class Result:
    """
    An arm's final runs.

    Args:
        arm (`Arm`), learning_rate (`float`): What ran.
        seeds (`tuple[int, ...]`), curves (`tuple` of `Curve`): Of its runs.
        runs (`tuple` of `Run`): They themselves; empty where the result was read from its JSON.
        tokens (`int`): The budget, the same for all arms of a panel.
    """

    arm: Arm
    learning_rate: float
    seeds: tuple[int, ...]
    curves: tuple[Curve, ...]
    tokens: int
    runs: tuple[Run, ...] = ()

    @property
    def final(self) -> Measured:
        """Accuracy when the budget is spent."""
        return Measured.of([curve.at(self.tokens).value[-1] for curve in self.curves])

    @property
    def mean(self) -> Measured:
        """Accuracy on average over the budget."""
        return Measured.of([mean_accuracy(curve, self.tokens) for curve in self.curves])

    @property
    def seconds(self) -> Measured:
        """Wall time of training until the budget is spent, evaluation not counted."""
        return Measured.of([curve.at(self.tokens).seconds[-1] for curve in self.curves])

    @property
    def cpu_seconds(self) -> list[float]:
        """Of each run's process, start and evaluation included; of the last one where a run was interrupted."""
        texts = (json.loads((run.folder / DONE).read_text()) for run in self.runs)
        return [text["cpu_seconds_of_last_process"] for text in texts]

    def over(self, baseline: "Result") -> Measured:
        """Difference of the mean accuracies to the baseline's, paired by seed."""
        self._expect_pairs(baseline)
        return Measured.of(np.array(self.mean.seeds) - np.array(baseline.mean.seeds))

    def by_tokens(self) -> dict[str, list[float]]:
        """Curve with its band on a grid of generated tokens."""
        grid = np.linspace(0, self.tokens, GRID)
        return _band(grid, np.stack([np.interp(grid, c.tokens, c.value) for c in self.curves]), "tokens")

    def by_seconds(self) -> dict[str, list[float]]:
        """Curve with its band on a grid of seconds, as far as the fastest run was when its budget was spent."""
        cut = [curve.at(self.tokens) for curve in self.curves]
        grid = np.linspace(0, min(curve.seconds[-1] for curve in cut), GRID)
        return _band(grid, np.stack([np.interp(grid, c.seconds, c.value) for c in cut]), "seconds")

    def ratios(self, baseline: "Result", unit: str = "tokens") -> dict[float, Ratio]:
        """Tokens or seconds to each of `LEVELS` that a run of either reached, over the baseline's."""
        self._expect_pairs(baseline)
        ratios = {level: ratio_to(self.curves, baseline.curves, level, self.tokens, unit) for level in LEVELS}
        return {level: ratio for level, ratio in ratios.items() if ratio.reached or ratio.baseline_reached}

    def _expect_pairs(self, baseline: "Result") -> None:
        if self.seeds != baseline.seeds:
            raise ValueError(
                f"got runs with seeds {self.seeds} and {baseline.seeds}, expected the same seeds in both."
            )


def _band(grid: np.ndarray, values: np.ndarray, unit: str) -> dict[str, list[float]]:
    low, high = interval(values)
    columns = {unit: grid, "iqm": iqm(values), "low": low, "high": high}
    return {name: np.round(column, 4).tolist() for name, column in columns.items()}


def baseline_of(result: Result, results: Sequence[Result]) -> Result:
    """GRPO in the same panel. Every panel has it."""
    return next(other for other in results if (other.arm.panel, other.arm.label) == (result.arm.panel, BASELINE))


def as_json(result: Result, baseline: Result) -> dict:
    """The statistics of an arm, and its runs, from which [`read_results`] makes its curves."""
    arm = result.arm
    numbers = {
        "panel": arm.panel,
        "label": arm.label,
        "task": arm.task.name,
        "method": arm.method,
        "changes": dict(arm.changes),
        "learning_rate": result.learning_rate,
        "tokens": result.tokens,
        "final": asdict(result.final),
        "mean": asdict(result.mean),
        "seconds": asdict(result.seconds),
        "cpu_seconds": result.cpu_seconds,
        "runs": [_run(seed, curve) for seed, curve in zip(result.seeds, result.curves, strict=True)],
        "mean_over_grpo": asdict(result.over(baseline)),
    }
    for unit in UNITS:
        ratios = result.ratios(baseline, unit)
        numbers[f"{unit}_to_over_grpo"] = {str(at): asdict(ratio) for at, ratio in ratios.items()}
    return numbers


def _run(seed: int, curve: Curve) -> dict:
    tokens = np.rint(curve.tokens).astype(int)  # TRL logs a mean length, so whole numbers only to its precision
    return {"seed": seed, "tokens": tokens, "seconds": curve.seconds, "accuracy": curve.value}


def read_results(study: Study, numbers: dict) -> list[Result]:
    """The results of a study from its JSON, without folders of runs: enough for its figure and its statistics."""
    arms = {(arm.panel, arm.label): arm for arm in study.arms}
    return [
        Result(
            arms[n["panel"], n["label"]],
            n["learning_rate"],
            tuple(run["seed"] for run in n["runs"]),
            tuple(map(_curve, n["runs"])),
            n["tokens"],
        )
        for n in numbers["results"]
    ]


def _curve(run: dict) -> Curve:
    tokens, seconds, accuracy = (np.array(run[name], dtype=float) for name in ("tokens", "seconds", "accuracy"))
    return Curve(np.full_like(tokens, np.nan), tokens, seconds, accuracy)  # no statistic depends on steps
