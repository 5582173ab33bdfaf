"""Whether TD errors of the kernel baseline help if their coefficient is learned: random tasks."""

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, gains, named, sheet, spans
from benchmarks.estimators.estimators import kernel, tempo
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.learned_td import learned, traced
from benchmarks.estimators.questions.comparisons import pair_records, pair_table

TITLE = "TD errors of the kernel baseline with a learned coefficient, on random tasks"
BATCHES = 100
METHODS = {
    "GRPO": tempo(0.0),
    "kernel baseline": kernel,
    "learned": learned,
    "always 0.1": traced(0.1),
    "TD error alone": traced(1.0),
}
TRIED = ("learned", "always 0.1", "TD error alone")
PAIRS = {f"{ours} over {other}": (ours, other) for ours in TRIED for other in ("kernel baseline", "GRPO")}


def measure_records(effort: Effort) -> list[dict]:
    return pair_records(effort, METHODS, PAIRS)


def table(records: list[dict]) -> Table:
    return pair_table(records, TITLE, PAIRS)


def draw(records: list[dict]) -> Figure:
    figure, panels = sheet(TITLE, TRIED, sharey=True)
    for axes, name in zip(panels, TRIED, strict=True):
        pairs = sorted(r[f"{name} over kernel baseline gain"] for r in records)
        values, lengths = spans(pairs)
        axes.errorbar(range(len(pairs)), values, lengths, color=BLUE, fmt="o", markersize=3.5, elinewidth=1)
        gains(axes, (0.06, 0.12, 0.25, 0.5, 1, 2, 4))
        axes.set_ylim(bottom=0.05)  # some of the TD errors alone are below
        named(axes, "random task", "kernel baseline's error / this one's" if axes is panels[0] else "")
    return figure
