"""Accuracy of each estimator per token: the state's value, the advantage's rank, and the share on decisive tokens."""

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GREEN, ORANGE, named, sheet
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure
from benchmarks.estimators.metrics import summary
from benchmarks.estimators.questions.methods import GROWN, INDEPENDENT, LAMBDA, REFERENCES
from benchmarks.estimators.questions.tasks import SAID, TASKS, shown

TITLE = "What every estimator says of tokens, at equal numbers of generated tokens (G = 8)"
BATCHES = 40
METHODS = INDEPENDENT | LAMBDA | GROWN | REFERENCES
METRICS = {
    "cosine": "cosine to the true gradient",
    "rank": "rank correlation with A(s, a)",
    "decisive": "share of |credit| on decisive tokens",
    "value_error": "error of V(s)",
}
COLOURS = dict(zip(TASKS, (BLUE, GREEN, ORANGE), strict=True))


def measure_records(effort: Effort) -> list[dict]:
    tasks = ("late",) if effort.quick else TASKS
    return [record for task in tasks for record in _records(task, effort)]


def _records(name: str, effort: Effort) -> list[dict]:
    task = TASKS[name]
    m, true = measure(task, METHODS, effort.batches, effort.budget, per_token=True), task.tree().gradient
    return [
        {"task": name, "method": method, "tokens": float(ours.tokens.mean()), **summary(ours, true)}
        for method, ours in m.items()
    ]


def table(records: list[dict]) -> Table:
    columns = ("cosine", "scale", "bias", "variance", "value_error", "rank", "decisive")
    table = Table(title=TITLE, caption="bias (squared) and variance as shares of the squared best-scaled gradient")
    for column in ("task", "", "tokens", *columns):
        table.add_column(column, justify="right")
    for r in records:
        figures = (shown(r[name], 3 if name in ("cosine", "bias") else 2) for name in columns)
        table.add_row(r["task"], r["method"], f"{r['tokens']:.0f}", *figures)
    return table


def draw(records: list[dict]) -> Figure:
    figure, panels = sheet(TITLE, METRICS.values(), (12, 7.6), sharey=True)
    figure.subplots_adjust(left=0.2, right=0.98, top=0.88, bottom=0.08, wspace=0.08)
    for axes, metric in zip(panels, METRICS, strict=True):
        for shift, task in enumerate(dict.fromkeys(r["task"] for r in records)):
            values, errors = zip(*(r[metric] for r in records if r["task"] == task), strict=True)
            rows = [row + 0.22 * (shift - 1) for row in range(len(values))]
            style = {"fmt": "osD"[shift], "markersize": 3.5, "color": COLOURS[task]}
            axes.errorbar(values, rows, xerr=[2 * e for e in errors], **style)
        axes.grid(axis="y", color="#eeeeee")
        named(axes, METRICS[metric])
        axes.set_title("", loc="left")
    panels[0].set_yticks(range(len(METHODS)), METHODS, fontsize=8)
    panels[0].invert_yaxis()
    for place, (task, colour) in enumerate(COLOURS.items()):
        figure.text(0.2 + 0.2 * place, 0.91, f"{'●■◆'[place]} {SAID[task]}", color=colour, fontsize=9)
    return figure
