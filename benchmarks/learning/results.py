"""Results of a study's runs: curves read from disk, and all numbers of its table, figure and JSON."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.learning.arms import BASELINE, ORACLES, Arm
from benchmarks.learning.runs import DONE, Run
from benchmarks.learning.statistics import Ratio, interval, iqm, mean_accuracy, ratio_of_iqms, ratio_to
from benchmarks.learning.studies import STUDIES
from tempo_trl.demo.results import accuracy_curve
from tempo_trl.runs.curves import Curve

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
UNITS = ("tokens", "seconds")
GRID = 41  # points of a curve
DIGITS = 6  # in the JSON: with five, a ratio in the tables rounds differently


def read_run(run: Run) -> Curve:
    """The curve of a finished run."""
    return accuracy_curve(run.folder, run.rows, run.group)


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

    def share(self, oracle: "Result", baseline: "Result") -> Measured | None:
        """
        Share of the oracle's lead over the baseline that this arm has, of mean accuracies, paired by seed.

        It is 0 for the baseline and 1 for the oracle. None where there is nothing to share: the interval of the
        oracle's lead reaches 0. One seed has no interval, so its lead itself is asked.
        """
        own, lead = self.over(baseline), oracle.over(baseline)
        if np.fmin(lead.low, lead.iqm) <= 0:
            return None
        pairs = np.array(own.seeds), np.array(lead.seeds)
        low, high = interval(*pairs, statistic=ratio_of_iqms)
        return Measured(own.iqm / lead.iqm, float(low), float(high), tuple((pairs[0] / pairs[1]).tolist()))

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


def oracle_of(result: Result, results: Sequence[Result]) -> Result | None:
    """The better of the oracles in the same panel."""
    return leader([other for other in results if other.arm.panel == result.arm.panel], ORACLES)


def leader(results: Sequence[Result], labels: Collection[str]) -> Result | None:
    """Of a panel's results with these labels, the one with the largest lead over GRPO."""
    named = [result for result in results if result.arm.label in labels]
    return max(named, key=lambda result: result.over(baseline_of(result, results)).iqm, default=None)


def as_json(result: Result, baseline: Result, oracle: Result | None = None) -> dict:
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
    if oracle is not None:
        share = result.share(oracle, baseline)
        numbers["share_of_oracle"] = share and asdict(share)
    return numbers


def _run(seed: int, curve: Curve) -> dict:
    tokens = np.rint(curve.tokens).astype(int)  # TRL logs a mean length, so whole numbers only to its precision
    return {"seed": seed, "tokens": tokens, "seconds": curve.seconds, "accuracy": curve.value}


def read_results(numbers: dict) -> list[Result]:
    """The results of a study from its JSON, without folders of runs: enough for its figure and its statistics."""
    known = STUDIES[numbers["study"]].arms
    return [
        Result(
            _arm_of(n, known),
            n["learning_rate"],
            tuple(run["seed"] for run in n["runs"]),
            tuple(map(_curve, n["runs"])),
            n["tokens"],
        )
        for n in numbers["results"]
    ]


def _arm_of(numbers: dict, known: Sequence[Arm]) -> Arm:
    """The arm of a study whose numbers these are, or the one that it had when they were measured."""
    panel, label = numbers["panel"], numbers["label"]
    beside = {arm.label: arm for arm in known if arm.panel == panel}
    task = next(iter(beside.values())).task
    return beside.get(label) or Arm(label, task, numbers["method"], tuple(numbers["changes"].items()), panel)


def _curve(run: dict) -> Curve:
    tokens, seconds, accuracy = (np.array(run[name], dtype=float) for name in ("tokens", "seconds", "accuracy"))
    return Curve(np.full_like(tokens, np.nan), tokens, seconds, accuracy)  # no statistic depends on steps
