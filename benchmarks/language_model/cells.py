"""The cells that have been measured, in one file that is committed as they come, and their statistics."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from benchmarks.compact_json import write_json
from benchmarks.language_model.arms import BASELINE, Cell
from benchmarks.language_model.study import Study
from benchmarks.learning.statistics import interval, iqm

DIGITS = 5


class Cells:
    """
    The measured cells in a file. A cell that it has is not run again, on whatever machine it ran.

    Args:
        study ([`~benchmarks.language_model.study.Study`]): The study.
        path (`Path`, *optional*): The file. Defaults to the study's.
    """

    def __init__(self, study: Study, path: Path | None = None):
        self.study, self.path, self._writing = study, path or study.numbers, Lock()
        self.rows = self._read()

    def _read(self) -> list[dict]:
        return json.loads(self.path.read_text())["cells"] if self.path.exists() else []

    def __contains__(self, cell: Cell) -> bool:
        return self.of(cell) is not None

    def of(self, cell: Cell) -> dict | None:
        """The numbers of a cell."""
        return next((row for row in self.rows if cell_of(row) == cell), None)

    @property
    def provenance(self) -> dict:
        """Where the cells come from."""
        return json.loads(self.path.read_text())["provenance"]

    def add(self, row: dict, origin: dict) -> None:
        """Add a cell's numbers to what other processes have written, and say where the cells come from."""
        with self._writing:
            self.rows = [*self._read(), row]
            commits = sorted({row["commit"] for row in self.rows if row.get("commit")})
            counted = sorted({row["seed"] for row in self.rows if self.study.is_final(cell_of(row))})
            provenance = origin | {"commits_of_runs": commits, "seeds": counted}
            write_json(self.path, {"provenance": provenance, "cells": self.rows}, DIGITS)

    def to_try(self, arm: str) -> list[float]:
        """The rates of an arm on the first of the sweep's seeds: two, then the best one's neighbours."""
        tried = self._ranked(arm)
        first, rates = self.study.first_rates, self.study.rates
        if not set(first) <= set(tried):
            return list(first)
        best = rates.index(tried[0])
        return list(rates[max(best - 1, 0) : best + 2])

    def best_two(self, arm: str) -> list[float]:
        """The two rates of an arm that were best on the first of the sweep's seeds; none before it has run at all."""
        tried = self._ranked(arm)
        return tried[:2] if set(self.to_try(arm)) <= set(tried) else []

    def _ranked(self, arm: str) -> list[float]:
        """The rates that have been tried on the first of the sweep's seeds, the best first."""
        seed = self.study.sweep_seeds[0]
        tried = {rate: row for rate in self.study.rates if (row := self.of(self.study.cell(arm, rate, seed)))}
        return sorted(tried, key=lambda rate: -np.mean(tried[rate]["reward"]))

    def rates(self) -> dict[str, float]:
        """
        Of each arm's best two rates the one with the higher mean reward over whole runs on the sweep's seeds, where
        both have run on all; for an arm that is rated as another one, that one's.
        """
        if not self.study.is_swept:
            return dict.fromkeys(self.study.arms, self.study.rates[0])
        chosen, seeds = {}, self.study.sweep_seeds
        for arm in self.study.arms:
            tried = {rate: [self.of(self.study.cell(arm, rate, s)) for s in seeds] for rate in self.best_two(arm)}
            if tried and all(row is not None for own in tried.values() for row in own):
                chosen[arm] = max(tried, key=lambda rate: np.mean([row["reward"] for row in tried[rate]]))
        rated = {name: arm.rated_as for name, arm in self.study.arms.items() if arm.rated_as in chosen}
        return chosen | {name: chosen[other] for name, other in rated.items()}

    def pairs(
        self, arm: str, rate: float, base_rate: float, seeds: Iterable[int] | None = None
    ) -> list[tuple[dict, dict]]:
        """An arm's cells with GRPO's of the same seed, where both have been measured."""
        seeds = self.study.seeds if seeds is None else seeds
        both = (
            (self.of(self.study.cell(arm, rate, s)), self.of(self.study.cell(BASELINE, base_rate, s))) for s in seeds
        )
        return [(own, base) for own, base in both if own is not None and base is not None]


def cell_of(row: dict) -> Cell:
    """The cell whose numbers these are."""
    return Cell(row["arm"], row["learning_rate"], row["seed"], row["steps"])


def smooth(series: Sequence[float | None]) -> np.ndarray:
    """Means over three steps, of those that have a number."""
    return np.nanmean(np.lib.stride_tricks.sliding_window_view(np.array(series, dtype=float), 3), axis=1)


def measured(values: Sequence[float], form: str = ".3f") -> str:
    """Interquartile mean with its interval over seeds."""
    low, high = interval(np.array(values))
    return f"{iqm(values):{form}}" + ("" if np.isnan(low) else f" [{low:{form}}, {high:{form}}]")
