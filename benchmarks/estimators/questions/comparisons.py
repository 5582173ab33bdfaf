"""Pairs of methods on the random tasks: how often one is ahead of the other, and by how much."""

from collections.abc import Callable, Iterable

import numpy as np
from rich.table import Table

from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure_groups
from benchmarks.estimators.metrics import gain
from benchmarks.estimators.questions.adaptive import random_tasks
from benchmarks.estimators.questions.tasks import shown
from benchmarks.estimators.task import Task

Pairs = dict[str, tuple[str, str]]  # by the pair's name, the method and what it is compared with


def pair_records(effort: Effort, methods: dict[str, Callable], pairs: Pairs) -> list[dict]:
    """The gains of all pairs, a record per random task."""
    return [_record(task, size, effort, methods, pairs) for task, size in random_tasks(effort)]


def _record(task: Task, size: int, effort: Effort, methods: dict[str, Callable], pairs: Pairs) -> dict:
    m = measure_groups(task, size, methods, effort.batches, effort.budget)
    gradient = task.tree().gradient
    return {"G": size, **{f"{name} gain": gain(m[ours], m[other], gradient) for name, (ours, other) in pairs.items()}}


def pair_table(records: list[dict], title: str, pairs: Iterable[str]) -> Table:
    """A line for each pair."""
    table = Table(title=title, caption="gain: the other's error / this one's; ahead or behind by two standard errors")
    for column in ("", "ahead", "behind", "median gain", "lowest gain"):
        table.add_column(column, justify="right")
    for name in pairs:
        gains = np.array([r[f"{name} gain"] for r in records])
        logs, errors = np.log(gains[:, 0]), gains[:, 1] / gains[:, 0]
        ahead, behind = ((sign * logs > 2 * errors).sum() for sign in (1, -1))
        least = gains[np.argmin(gains[:, 0])]
        table.add_row(name, str(ahead), str(behind), f"{np.median(gains[:, 0]):.2f}", shown(least))
    return table
