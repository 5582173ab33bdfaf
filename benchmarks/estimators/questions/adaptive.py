"""Whether the prefix baseline with learned shrinkage is ever worse than GRPO: many random tasks."""

from dataclasses import asdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GAIN, GREY, ORANGE, gains, named, sheet, spans
from benchmarks.estimators.estimators import METHODS
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import SEED, measure_groups
from benchmarks.estimators.metrics import difference, gain, shown
from benchmarks.estimators.task import Task

TITLE = "The adaptive prefix baseline against GRPO on random tasks, the same batches"
BATCHES = 100
TASKS, QUICK_TASKS, WORST = 48, 3, 4
AGAIN = 4  # times as many new batches for the worst tasks: the worst of many is worst by chance too


def random_task(rng: np.random.Generator, seed: int) -> tuple[Task, int]:
    """A task and a size of group, drawn at random; every state has logits of its own."""
    vocabulary, depth = ((2, 10), (3, 7), (4, 6))[rng.integers(3)]
    decisive = np.sort(rng.choice(depth, rng.integers(1, depth // 2 + 1), replace=False))
    importance, success = rng.uniform(0.5, 1.0), rng.uniform(0.1, 0.9)
    lowest = (1 - importance) ** len(decisive)  # the success rate of nothing but wrong decisive tokens
    task = Task(
        tuple(int(column) for column in decisive),
        success=float(lowest + (1 - lowest) * success),
        importance=float(importance),
        irrelevant=float(rng.uniform(0.02, 1.0)),
        depth=depth,
        vocabulary=vocabulary,
        spread=float(rng.choice([0.0, 0.5])),
        seed=seed,
    )
    return task, int(rng.choice([4, 8, 16, 32]))


def random_tasks(effort: Effort) -> list[tuple[Task, int]]:
    """The tasks of the question, and the sizes of their groups."""
    rng = np.random.default_rng(SEED)
    return [random_task(rng, seed) for seed in range(QUICK_TASKS if effort.quick else TASKS)]


def measure_records(effort: Effort) -> list[dict]:
    drawn = random_tasks(effort)
    records = [_record(*task, effort, SEED) for task in drawn]
    worst = np.argsort([z(r) for r in records])[: 1 if effort.quick else WORST]
    for place in worst:
        again = _record(*drawn[place], effort._replace(batches=AGAIN * effort.batches), SEED + 1)
        records[place]["again"] = {name: again[name] for name in again if name.endswith(("gain", "cosine"))}
    return records


def z(record: dict) -> float:
    """Difference of the cosines in standard errors."""
    return record["adaptive - GRPO cosine"][0] / record["adaptive - GRPO cosine"][1]


def _record(task: Task, size: int, effort: Effort, seed: int) -> dict:
    tree, m = task.tree(), measure_groups(task, size, METHODS, effort.batches, effort.budget, seed)
    record = {"task": asdict(task), "G": size, "success": float(tree.values[0])}
    for name in ("TEMPO", "adaptive"):
        record[f"{name} - GRPO cosine"] = difference(m[name], m["GRPO"])
        record[f"{name} gain"] = gain(m[name], m["GRPO"], tree.gradient)
    return record


def counts(records: list[dict], name: str) -> list[str]:
    """Of the tasks: above and below GRPO by more than two standard errors, median gain, lowest, lowest difference."""
    pairs = np.array([r[f"{name} - GRPO cosine"] for r in records])
    ratios = np.array([r[f"{name} gain"] for r in records])
    worst, least = pairs[np.argmin(pairs[:, 0])], ratios[np.argmin(ratios[:, 0])]
    above, below = ((sign * pairs[:, 0] > 2 * pairs[:, 1]).sum() for sign in (1, -1))
    return [str(above), str(below), f"{np.median(ratios[:, 0]):.2f}", shown(least), shown(worst, 4)]


def table(records: list[dict]) -> Table:
    table = Table(
        title=f"{TITLE} ({len(records)} tasks)", caption="gain: GRPO's error / this one's; above 1 is better"
    )
    for column in ("", "above by 2 s.e.", "below by 2 s.e.", "median gain", "lowest gain", "lowest cosine difference"):
        table.add_column(column, justify="right")
    for name in ("adaptive", "TEMPO"):
        table.add_row(name, *counts(records, name))
    for record in (r for r in records if "again" in r):
        again = record["again"]["adaptive - GRPO cosine"], record["again"]["adaptive gain"]
        first = shown(record["adaptive gain"]), shown(record["adaptive - GRPO cosine"], 4)
        table.add_row(f"worst again, {AGAIN} x batches", "", "", "was", *first, style="dim")
        table.add_row("", "", "", "is", shown(again[1]), shown(again[0], 4))
    return table


def draw(records: list[dict]) -> Figure:
    figure, (left, right) = sheet(TITLE, ("adaptive, sorted", "TEMPO, the same order"), sharey=True)
    order = np.argsort([r["adaptive gain"][0] for r in records])
    _dots(left, [records[i]["adaptive gain"] for i in order], BLUE)
    _dots(right, [records[i]["TEMPO gain"] for i in order], ORANGE)
    named(left, "random task", GAIN)
    named(right, "random task")
    again = {int(np.flatnonzero(order == i)[0]): r["again"] for i, r in enumerate(records) if "again" in r}
    values, lengths = spans([r["adaptive gain"] for r in again.values()])
    left.errorbar(list(again), values, lengths, color="black", fmt="D", markersize=4, capsize=2)
    left.annotate(
        "diamonds: the worst again,\nnew batches, four times as many",
        (0.05, 0.85),
        xycoords="axes fraction",
        fontsize=8,
    )
    return figure


def _dots(axes: Axes, pairs: list[tuple[float, float]], colour: str) -> None:
    values, lengths = spans(pairs)
    axes.errorbar(range(len(pairs)), values, lengths, color=colour, ecolor=GREY, fmt="o", markersize=3.5, elinewidth=1)
    gains(axes, (0.5, 0.7, 1, 1.4, 2, 4, 8, 16))
