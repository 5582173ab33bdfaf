"""Carry out a study: starting policies, the sweep of learning rates, the final runs. Finished runs are reused."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.learning.arms import Arm, Study
from benchmarks.learning.results import Result, read_run
from benchmarks.learning.runs import Budget, Run
from benchmarks.learning.starts import Start
from benchmarks.learning.statistics import mean_accuracy
from benchmarks.learning.studies import STUDIES
from benchmarks.learning.workers import finish

START_STEPS = 1600
QUICK_METHODS = ("grpo", "tempo")
QUICK_RATE, QUICK_BUDGET, QUICK_START_STEPS, QUICK_HELD_OUT = 1e-3, Budget(2, 2), 40, 64


@dataclass(frozen=True)
class Tried:
    """A learning rate of a sweep, and the mean accuracy over the budget that each sweep seed had with it."""

    label: str
    learning_rate: float
    mean_accuracy: tuple[float, ...]


@dataclass(frozen=True)
class Experiment:
    """
    Args:
        output (`Path`): Folder of starts and runs, which all studies share.
        parallel (`int`): Processes at a time.
        console (`Console`): Where progress is shown.
        seeds (`tuple[int, ...]`): Of the final runs.
        quick (`bool`): Whether studies keep a few methods and a panel, and runs are short, at one rate.
    """

    output: Path
    parallel: int
    console: Console
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    quick: bool = False

    start_of, run_of, studies, start_steps = Start, Run, STUDIES, START_STEPS  # another benchmark has its own

    def study(self, name: str) -> Study:
        """The study, as short as this experiment is.

        Raises:
            ValueError: a seed of the final runs also chooses learning rates.
        """
        whole = self.studies[name]
        both = set(self.seeds) & set(whole.sweep_seeds)
        if both:
            raise ValueError(f"seed {min(both)} is used to choose learning rates. Use other seeds for the final runs.")
        arms = tuple(arm for arm in whole.arms if arm.method in QUICK_METHODS and not _grown(arm))
        return replace(whole, arms=tuple(a for a in arms if a.panel == arms[0].panel)) if self.quick else whole

    def measure(self, one: Study) -> tuple[list[Result], list[Tried]]:
        """Train what is missing; the final results, and the sweep that chose the study's learning rates."""
        self._make_starts(one.arms)
        chosen, tried = self._learning_rates(one)
        runs = {arm: self._runs(one, arm, chosen[arm], self.seeds) for arm in one.arms}
        by_seed = [run for seed in zip(*runs.values(), strict=True) for run in seed]  # a pair runs in the same hour
        finish(by_seed, self.parallel, self.console, f"{one.name}: final runs")
        results = [
            Result(
                arm, chosen[arm], tuple(run.seed for run in own), tuple(map(read_run, own)), own[0].tokens, tuple(own)
            )
            for arm, own in runs.items()
        ]
        return results, tried

    def _make_starts(self, arms: Sequence[Arm]) -> None:
        starts = [self._start(arm) for arm in arms]
        finish(starts, self.parallel, self.console, "starting policies")
        for start in () if self.quick else starts:
            start.check()

    def _start(self, arm: Arm) -> Start:
        shape = (QUICK_START_STEPS, QUICK_HELD_OUT) if self.quick else (self.start_steps,)
        return self.start_of.beneath(self.output / "starts", arm.task, *shape)

    def _runs(self, one: Study, arm: Arm, rate: float, seeds: Sequence[int]) -> list[Run]:
        start, budget = self._start(arm), QUICK_BUDGET if self.quick else one.budget
        return [self.run_of(start, arm.method, rate, seed, self.output, arm.changes, budget) for seed in seeds]

    def _learning_rates(self, one: Study) -> tuple[dict[Arm, float], list[Tried]]:
        """Each arm's rate: chosen by its own sweep, or by that of the arm it is `tuned_as` on the base task."""
        if self.quick:
            return {arm: arm.learning_rate or QUICK_RATE for arm in one.arms}, []
        wanted = {arm.tuned_as for arm in one.arms if arm.learning_rate is None}
        base = one if one.swept else self.study("chain")
        swept = [arm for arm in base.arms if arm.tuned_as in wanted]
        self._make_starts(swept)
        tried = self._sweep(swept, base)
        return {arm: arm.learning_rate or best_rate(tried, arm.tuned_as) for arm in one.arms}, tried

    def _sweep(self, arms: Sequence[Arm], base: Study) -> list[Tried]:
        cells = {(arm, rate): self._runs(base, arm, rate, base.sweep_seeds) for arm in arms for rate in base.rates}
        runs = [run for own in cells.values() for run in own]
        finish(runs, self.parallel, self.console, f"{base.name}: sweep of learning rates")
        return [
            Tried(arm.tuned_as, rate, tuple(mean_accuracy(read_run(run), run.tokens) for run in own))
            for (arm, rate), own in cells.items()
        ]


def _grown(arm: Arm) -> bool:
    return "rollout" in dict(arm.changes)


def best_rate(tried: Sequence[Tried], label: str) -> float:
    """The rate with the highest mean accuracy over the budget, on average over the sweep's seeds."""
    own = [one for one in tried if one.label == label]
    return max(own, key=lambda one: np.mean(one.mean_accuracy)).learning_rate


def at_edge(tried: Sequence[Tried], label: str) -> bool:
    """Whether the best rate is the lowest or the highest that was tried: a better one may lie beyond."""
    rates = [one.learning_rate for one in tried if one.label == label]
    return best_rate(tried, label) in (min(rates), max(rates))
