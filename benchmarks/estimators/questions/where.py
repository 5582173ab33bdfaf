"""Where TEMPO beats GRPO: by the place of the decisive token, the group, the success rate and irrelevant entropy."""

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import CYCLE, GAIN, bars, gains, name_ends, named, sheet
from benchmarks.estimators.estimators import METHODS
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure_groups
from benchmarks.estimators.metrics import difference, gain, shown, summary
from benchmarks.estimators.task import Task

TITLE = "Where TEMPO is nearer to the true gradient than GRPO: one decisive token"
BATCHES = 120
POSITIONS, GROUPS = (1, 2, 3, 4, 5, 6, 8, 10), (3, 8, 16, 64)
VARIANTS = {
    "success 0.4": {},
    "success 0.1": {"success": 0.1},
    "success 0.8": {"success": 0.8},
    "importance 0.7": {"importance": 0.7},
    "low entropy": {"irrelevant": 0.3},
}


def cells(quick: bool) -> list[tuple[str, int, int]]:
    """(variant, group size, position): all sizes at success 0.4, eight completions for the other variants."""
    positions, groups = ((1, 10), (3, 8)) if quick else (POSITIONS, GROUPS)
    sizes = dict.fromkeys(VARIANTS, (8,)) | {"success 0.4": groups}
    return [(name, size, position) for name in VARIANTS for size in sizes[name] for position in positions]


def measure_records(effort: Effort) -> list[dict]:
    return [_record(cell, effort) for cell in cells(effort.quick)]


def _record(cell: tuple[str, int, int], effort: Effort) -> dict:
    variant, size, position = cell
    task = Task((position - 1,), **VARIANTS[variant])
    m = measure_groups(task, size, METHODS, effort.batches, effort.budget)
    true = task.tree().gradient
    return {
        "variant": variant,
        "G": size,
        "position": position,
        "sharing": float(task.tree().sharing(size)[position - 1]),
        "TEMPO gain": gain(m["TEMPO"], m["GRPO"], true),
        "adaptive gain": gain(m["adaptive"], m["GRPO"], true),
        "TEMPO - GRPO cosine": difference(m["TEMPO"], m["GRPO"]),
        "adaptive - GRPO cosine": difference(m["adaptive"], m["GRPO"]),
        **{f"{name} error": summary(m[name], true)["error"] for name in METHODS},
    }


def table(records: list[dict]) -> Table:
    table = Table(title=TITLE, caption="gain: GRPO's error / the method's at equal tokens; above 1 is better")
    for column in ("variant", "G", "token", "sharing", "TEMPO gain", "adaptive gain", "cosine, TEMPO - GRPO"):
        table.add_column(column, justify="right")
    for r in records:
        cells = [r["variant"], str(r["G"]), str(r["position"]), f"{r['sharing']:.2f}"]
        gains_shown = [shown(r[name]) for name in ("TEMPO gain", "adaptive gain")]
        table.add_row(*cells, *gains_shown, shown(r["TEMPO - GRPO cosine"], 3))
    return table


def draw(records: list[dict]) -> Figure:
    figure, (left, right) = sheet(
        TITLE, ("by its place, success 0.4", "by the completions that still share the prefix there")
    )
    ends = {}
    for size, colour in zip(dict.fromkeys(r["G"] for r in records), CYCLE, strict=False):
        rows = [r for r in records if r["variant"] == "success 0.4" and r["G"] == size]
        bars(left, [r["position"] for r in rows], [r["TEMPO gain"] for r in rows], colour)
        ends[f"G = {size}"] = rows[-1]["TEMPO gain"][0], colour
    named(left, "place of the decisive token", f"{GAIN} (TEMPO)")
    for (name, colour), marker in zip(zip(VARIANTS, CYCLE, strict=False), "osv^D", strict=True):
        rows = [r for r in records if r["variant"] == name]
        points = [r["sharing"] for r in rows], [r["TEMPO gain"] for r in rows]
        bars(right, *points, colour, linestyle="", marker=marker, alpha=0.8)
        right.annotate(
            name, (0.04, 0.95 - 0.07 * list(VARIANTS).index(name)), xycoords="axes fraction", color=colour, fontsize=8
        )
    right.set_xscale("log", base=2)
    right.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    named(right, "expected completions in the state before it", "")
    for axes in (left, right):
        gains(axes, (0.25, 0.5, 1, 2, 4, 8))
    name_ends(left, ends)
    return figure
