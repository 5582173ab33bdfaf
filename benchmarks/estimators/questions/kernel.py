"""Whether a baseline from similar prefixes is ever worse than GRPO, or than one from equal prefixes: random tasks."""

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GAIN, gains, named, sheet, spans
from benchmarks.estimators.estimators import Estimator, adaptive, kernel, tempo
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure
from benchmarks.estimators.metrics import gain
from benchmarks.estimators.questions.adaptive import random_tasks
from benchmarks.estimators.questions.tasks import shown
from benchmarks.estimators.rollouts import Independent
from benchmarks.estimators.task import Task

TITLE = "Similar beside equal prefixes on random tasks: GRPO's error / the kernel baseline's"
BATCHES = 100
METHODS = {"GRPO": tempo(0.0), "prefix baseline": adaptive(), "kernel baseline": kernel}
PAIRS = {
    "kernel baseline": ("kernel baseline", "GRPO"),
    "prefix baseline": ("prefix baseline", "GRPO"),
    "kernel over prefix": ("kernel baseline", "prefix baseline"),
}


def measure_records(effort: Effort) -> list[dict]:
    return [_record(task, size, effort) for task, size in random_tasks(effort)]


def _record(task: Task, size: int, effort: Effort) -> dict:
    iid, tree = Independent(size), task.tree()
    m = measure(
        task, {name: Estimator(iid, credit) for name, credit in METHODS.items()}, effort.batches, effort.budget
    )
    return {
        "G": size,
        **{f"{name} gain": gain(m[ours], m[other], tree.gradient) for name, (ours, other) in PAIRS.items()},
    }


def table(records: list[dict]) -> Table:
    return counted(records, TITLE, PAIRS)


def counted(records: list[dict], title: str, pairs: Iterable[str]) -> Table:
    """How often a pair's first method is ahead of its second, and by how much."""
    table = Table(title=title, caption="gain: the other's error / this one's; ahead or behind by two standard errors")
    for column in ("", "ahead", "behind", "median gain", "lowest gain"):
        table.add_column(column, justify="right")
    for name in pairs:
        ratios = np.array([r[f"{name} gain"] for r in records])
        logs, errors = np.log(ratios[:, 0]), ratios[:, 1] / ratios[:, 0]
        ahead, behind = ((sign * logs > 2 * errors).sum() for sign in (1, -1))
        least = ratios[np.argmin(ratios[:, 0])]
        table.add_row(name, str(ahead), str(behind), f"{np.median(ratios[:, 0]):.2f}", shown(least))
    return table


def draw(records: list[dict]) -> Figure:
    figure, panels = sheet(TITLE, ("over GRPO", "over the prefix baseline"))
    order = np.argsort([r["kernel baseline gain"][0] for r in records])
    for axes, name in zip(panels, ("kernel baseline", "kernel over prefix"), strict=True):
        values, lengths = spans([records[i][f"{name} gain"] for i in order])
        axes.errorbar(range(len(order)), values, lengths, color=BLUE, fmt="o", markersize=3.5, elinewidth=1)
        gains(axes, (0.5, 0.7, 1, 1.4, 2, 4, 8, 16))
        named(axes, "random task", GAIN if axes is panels[0] else "")
    return figure
