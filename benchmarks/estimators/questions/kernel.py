"""Whether a baseline from similar prefixes is ever worse than GRPO, or than one from equal prefixes: random tasks."""

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GAIN, gains, named, sheet, spans
from benchmarks.estimators.estimators import adaptive, kernel, tempo
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.questions.comparisons import pair_records, pair_table

TITLE = "Similar beside equal prefixes on random tasks: GRPO's error / the kernel baseline's"
BATCHES = 100
METHODS = {"GRPO": tempo(0.0), "prefix baseline": adaptive(), "kernel baseline": kernel}
PAIRS = {
    "kernel baseline": ("kernel baseline", "GRPO"),
    "prefix baseline": ("prefix baseline", "GRPO"),
    "kernel over prefix": ("kernel baseline", "prefix baseline"),
}


def measure_records(effort: Effort) -> list[dict]:
    return pair_records(effort, METHODS, PAIRS)


def table(records: list[dict]) -> Table:
    return pair_table(records, TITLE, PAIRS)


def draw(records: list[dict]) -> Figure:
    figure, panels = sheet(TITLE, ("over GRPO", "over the prefix baseline"))
    order = np.argsort([r["kernel baseline gain"][0] for r in records])
    for axes, name in zip(panels, ("kernel baseline", "kernel over prefix"), strict=True):
        values, lengths = spans([records[i][f"{name} gain"] for i in order])
        axes.errorbar(range(len(order)), values, lengths, color=BLUE, fmt="o", markersize=3.5, elinewidth=1)
        gains(axes, (0.5, 0.7, 1, 1.4, 2, 4, 8, 16))
        named(axes, "random task", GAIN if axes is panels[0] else "")
    return figure
