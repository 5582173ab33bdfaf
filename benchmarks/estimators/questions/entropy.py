"""The cost of irrelevant entropy: tokens without effect, from almost deterministic to uniform over four."""

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import (
    AMBER,
    BLACK,
    BLUE,
    GAIN,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    bars,
    gains,
    name_ends,
    named,
    sheet,
)
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure
from benchmarks.estimators.metrics import gain, summary
from benchmarks.estimators.questions.methods import GROWN, INDEPENDENT
from benchmarks.estimators.questions.tasks import shown
from benchmarks.estimators.task import Task

TITLE = "Irrelevant entropy: decisive tokens 2 and 5 of 8, four tokens, success 0.4"
BATCHES = 40
AMOUNTS, QUICK_AMOUNTS = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0), (0.1, 1.0)
COLOURS = {
    "GRPO": BLACK,
    "TEMPO, c = 1": BLUE,
    "prefix baseline, k = 8": SKY,
    "prefix baseline, adaptive": GREEN,
    "TEMPO, fixed 2³": PURPLE,
    "TEMPO, entropy 8": AMBER,
    "TreeRPO entropy 8": ORANGE,
}
METHODS = {name: (INDEPENDENT | GROWN)[name] for name in COLOURS}


def task_of(irrelevant: float) -> Task:
    return Task((1, 4), irrelevant=irrelevant, depth=8, vocabulary=4)


def entropy_of(irrelevant: float) -> float:
    """Of an irrelevant token, in bits."""
    p = task_of(irrelevant).distributions()[0]
    return float(-(p * np.log2(p)).sum())


def measure_records(effort: Effort) -> list[dict]:
    return [r for amount in (QUICK_AMOUNTS if effort.quick else AMOUNTS) for r in _records(amount, effort)]


def _records(irrelevant: float, effort: Effort) -> list[dict]:
    task = task_of(irrelevant)
    m, tree = measure(task, METHODS, effort.batches, effort.budget), task.tree()
    sharing = [float(tree.sharing(8)[column]) for column in task.decisive]
    about = {"irrelevant": irrelevant, "bits": entropy_of(irrelevant), "sharing": sharing}
    return [
        about | {"method": name, "gain": gain(m[name], m["GRPO"], tree.gradient), **summary(m[name], tree.gradient)}
        for name in METHODS
    ]


def table(records: list[dict]) -> Table:
    table = Table(title=TITLE, caption="cosine to the true gradient; sharing: of eight, before tokens 2 and 5")
    for column in ("bits a token", "sharing", *METHODS):
        table.add_column(column, justify="right")
    for amount in dict.fromkeys(r["irrelevant"] for r in records):
        rows = [r for r in records if r["irrelevant"] == amount]
        sharing = ", ".join(f"{x:.1f}" for x in rows[0]["sharing"])
        table.add_row(f"{rows[0]['bits']:.2f}", sharing, *(shown(r["cosine"], 3) for r in rows))
    return table


def draw(records: list[dict]) -> Figure:
    figure, (left, right) = sheet(
        TITLE, ("error: squared bias and variance", "against GRPO at the same entropy"), (11, 4.8)
    )
    figure.subplots_adjust(right=0.85, wspace=0.2)
    ends = {}
    for name, colour in COLOURS.items():
        rows = [r for r in records if r["method"] == name]
        bits = [r["bits"] for r in rows]
        bars(left, bits, [r["error"] for r in rows], colour)
        bars(right, bits, [r["gain"] for r in rows], colour)
        ends[name] = rows[-1]["gain"][0], colour
    left.set_yscale("log")
    gains(right, (0.25, 0.5, 1, 2, 4, 8, 16))
    name_ends(right, ends)
    named(left, "entropy of an irrelevant token, bits", "error / |true gradient|²")
    named(right, "entropy of an irrelevant token, bits", GAIN)
    return figure
