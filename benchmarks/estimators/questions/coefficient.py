"""Which coefficient of the TD error, and which shrinkage of the prefix baseline, is best."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GAIN, GREEN, ORANGE, bars, gains, named, sheet
from benchmarks.estimators.estimators import adaptive, prefix_baseline, tempo
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure_groups
from benchmarks.estimators.metrics import gain
from benchmarks.estimators.questions.tasks import SAID, TASKS, shown

TITLE = "Coefficient of the TD error, and shrinkage of the prefix baseline"
BATCHES = 120
COEFFICIENTS = (0, 0.25, 0.5, 1, 2, 3, 4)  # 0 is GRPO
SHRINKAGES = (0, 0.5, 1, 2, 4, 8, 16, 32, 64, float("inf"))  # infinity is RLOO
QUICK = (0, 4)
COLOURS = dict(zip(TASKS, (BLUE, GREEN, ORANGE), strict=True))


def measure_records(effort: Effort) -> list[dict]:
    sizes = (8,) if effort.quick else (8, 32)
    return [record for size in sizes for task in TASKS for record in _records(task, size, effort)]


def _records(task: str, size: int, effort: Effort) -> list[dict]:
    """GRPO's error over that of each knob's setting, on the same batches."""
    knobs = {("td_coef", c): tempo(c) for c in (QUICK if effort.quick else COEFFICIENTS)}
    knobs |= {("shrinkage", k): prefix_baseline(float(k)) for k in (QUICK if effort.quick else SHRINKAGES)}
    knobs[("shrinkage", "auto")] = adaptive()
    true = TASKS[task].tree().gradient
    m = measure_groups(TASKS[task], size, knobs, effort.batches, effort.budget)
    return [
        {"task": task, "G": size, "knob": knob, "setting": setting, "gain": gain(ours, m["td_coef", 0], true)}
        for (knob, setting), ours in m.items()
    ]


def best(records: list[dict], task: str, size: int, knob: str) -> dict:
    """The setting with the least error."""
    rows = [r for r in records if (r["task"], r["G"], r["knob"]) == (task, size, knob) and r["setting"] != "auto"]
    return max(rows, key=lambda r: r["gain"][0])


def table(records: list[dict]) -> Table:
    table = Table(title=TITLE, caption="GRPO's error / this one's at equal tokens; above 1 is better")
    settings = list(dict.fromkeys((r["knob"], r["setting"]) for r in records))
    columns = list(dict.fromkeys((r["task"], r["G"]) for r in records))
    for column in ("", *(f"{task}, G = {size}" for task, size in columns)):
        table.add_column(column, justify="right")
    found = {(r["knob"], r["setting"], r["task"], r["G"]): shown(r["gain"]) for r in records}
    for knob, setting in settings:
        table.add_row(f"{knob} {setting}", *(found[knob, setting, *column] for column in columns))
    bests = [f"{best(records, *column, 'td_coef')['setting']}" for column in columns]
    table.add_row("best td_coef", *bests, style="bold")
    table.add_row("best shrinkage", *(f"{best(records, *c, 'shrinkage')['setting']}" for c in columns), style="bold")
    return table


def draw(records: list[dict]) -> Figure:
    sizes = list(dict.fromkeys(r["G"] for r in records))
    panels = [f"{name}, G = {size}" for size in sizes for name in ("coefficient", "shrinkage")]
    figure, axes = sheet(TITLE, panels, (11.5, 4.4))
    figure.subplots_adjust(left=0.06, right=0.99, wspace=0.25)
    for place, size in enumerate(sizes):
        coefficient, shrinkage = axes[2 * place : 2 * place + 2]
        for task in TASKS:
            rows = [r for r in records if (r["task"], r["G"]) == (task, size)]
            _line(coefficient, [r for r in rows if r["knob"] == "td_coef"], task)
            _line(shrinkage, [r for r in rows if r["knob"] == "shrinkage"], task)
        named(coefficient, "td_coef c (0 is GRPO)", GAIN if not place else "")
        named(shrinkage, "shrinkage k (∞ is RLOO)", "")
        for panel in (coefficient, shrinkage):
            gains(panel, (0.125, 0.25, 0.5, 1, 2, 4, 8, 16))
            panel.set_ylim(0.1, 24)
        _ticks(shrinkage, [r for r in records if r["knob"] == "shrinkage"])
    for height, task in enumerate(TASKS):
        at = (0.97, 0.93 - 0.07 * height)
        axes[0].annotate(SAID[task], at, xycoords="axes fraction", fontsize=8, color=COLOURS[task], ha="right")
    return figure


def _line(axes: Axes, rows: list[dict], task: str) -> None:
    """Coefficients as numbers, shrinkages in even steps and the learned one apart."""
    if rows[0]["knob"] == "td_coef":
        bars(axes, [r["setting"] for r in rows], [r["gain"] for r in rows], COLOURS[task])
        return
    fixed = [r["gain"] for r in rows if r["setting"] != "auto"]
    bars(axes, range(len(fixed)), fixed, COLOURS[task])
    bars(axes, [len(fixed) + 0.3], [r["gain"] for r in rows if r["setting"] == "auto"], COLOURS[task], marker="D")


def _ticks(axes: Axes, rows: list[dict]) -> None:
    settings = list(dict.fromkeys(r["setting"] for r in rows if r["setting"] != "auto"))
    axes.set_xticks(
        [*range(len(settings)), len(settings) + 0.3],
        [*(f"{k:g}".replace("inf", "∞") for k in settings), "auto"],
        fontsize=7,
    )
