"""What `tempo-trl compare` prints: sheets as the paper's Table 1, for a terminal and as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tempo_trl.compare import paper
from tempo_trl.compare.curves import METRICS, SMOOTHED, MethodCurve, Speed
from tempo_trl.compare.table import Cell, Gap
from tempo_trl.methods import method_label

NOT_RUN = "not run"
UNITS = {"steps": "steps", "tokens": "tokens", "seconds": "time"}


class Sheet(NamedTuple):
    """A table of cells, each some lines of text."""

    title: str
    headings: list[str]
    rows: list[list[list[str]]]
    caption: str


def sheets(cells: Sequence[Cell], gaps: Sequence[Gap], curves: Sequence[MethodCurve]) -> list[Sheet]:
    """Table 1 and the differences for each model, the other metrics, and where the curves end; empty ones left out."""
    found = []
    for model in dict.fromkeys(cell.row[0] for cell in cells):
        own = [cell for cell in cells if cell.row[0] == model]
        own_gaps = [gap for gap in gaps if gap.cell.row[0] == model]
        primary = _primary(own)
        found += [
            _table(model, own, primary),
            _differences(model, own_gaps, primary),
            _others(model, own, own_gaps, primary),
        ]
    return [sheet for sheet in [*found, _ends(curves)] if sheet.rows]


def _primary(cells: Sequence[Cell]) -> dict[str, str]:
    """The metric that stands for each task: the accuracy, or what was measured in its place; tasks as in the paper."""
    in_paper = cells[0].row[0] in paper.MODELS
    tasks = dict.fromkeys([*(paper.TASKS if in_paper else ()), *(cell.task for cell in cells)])
    measured = {task: [cell.metric for cell in cells if cell.task == task] for task in tasks}
    return {task: "accuracy" if "accuracy" in own or not own else own[0] for task, own in measured.items()}


def _headings(primary: dict[str, str]) -> list[str]:
    names = {task: paper.TASKS.get(task, task) for task in primary}
    return ["", *(names[task] + ("" if metric == "accuracy" else f", {metric}") for task, metric in primary.items())]


def _table(model: str | None, cells: Sequence[Cell], primary: dict[str, str]) -> Sheet:
    of = {(cell.row, cell.task): cell for cell in cells if cell.metric == primary[cell.task]}
    of_paper = [(model, method, None) for method in paper.TABLE_1.get(model, {})]
    rows = dict.fromkeys([*of_paper, *(cell.row for cell in cells)])
    lines = [[[_name(row)], *(_cell_lines(of.get((row, task)), row, task) for task in primary)] for row in rows]
    caption = "Accuracy in %, with its 95% interval over questions: it holds no noise of training."
    if of_paper:
        caption += f" Beneath, the paper's value ({paper.SOURCE})."
    return Sheet(_title("Accuracy", model), _headings(primary), lines, caption)


def _cell_lines(cell: Cell | None, row: tuple, task: str) -> list[str]:
    lines = [NOT_RUN]
    if cell:
        lines = [f"{100 * cell.value:.1f}", *([_range(cell.interval)] if cell.interval else [])]
        values = [value for _, _, value in cell.runs]
        if len(values) > 1:
            lines.append(f"{len(values)} runs:")
            lines.append(_range((min(values), max(values))))
    of_paper = None if row[2] else paper.table_1(row[0], row[1], task)
    return [*lines, *([f"paper {of_paper}"] if of_paper is not None else [])]


def _differences(model: str | None, gaps: Sequence[Gap], primary: dict[str, str]) -> Sheet:
    of = {(gap.cell.row, gap.cell.task): gap for gap in gaps if gap.cell.metric == primary[gap.cell.task]}
    rows = dict.fromkeys(gap.cell.row for gap in gaps)
    lines = [[[_name(row)], *(_gap_lines(of.get((row, task))) for task in primary)] for row in rows]
    baseline = gaps[0].baseline.row[1] if gaps else ""
    caption = "Points, with 95% intervals paired over the questions of both. Without one the answers were not kept."
    return Sheet(_title(f"Difference from {method_label(baseline)}", model), _headings(primary), lines, caption)


def _gap_lines(gap: Gap | None) -> list[str]:
    if gap is None:
        return [NOT_RUN]
    lines = [f"{100 * gap.value:+.1f}"]
    if gap.paired:
        lines.append(f"{100 * gap.paired.low:+.1f} to {100 * gap.paired.high:+.1f}")
    return [*lines, *([f"paper {100 * gap.paper:+.1f}"] if gap.paper is not None else [])]


def _others(model: str | None, cells: Sequence[Cell], gaps: Sequence[Gap], primary: dict[str, str]) -> Sheet:
    """A row a task and metric that Table 1 has no room for, a column a method."""
    others = [cell for cell in cells if cell.metric != primary[cell.task]]
    columns = list(dict.fromkeys(cell.row for cell in others))
    of = {(cell.task, cell.metric, cell.row): cell for cell in others}
    of_gap = {(gap.cell.task, gap.cell.metric, gap.cell.row): gap for gap in gaps}
    lines = []
    for task, metric in dict.fromkeys((cell.task, cell.metric) for cell in others):
        row = [[f"{paper.TASKS.get(task, task)} {metric}"]]
        for column in columns:
            cell, gap = of.get((task, metric, column)), of_gap.get((task, metric, column))
            row.append(_other_lines(cell, gap) if cell else [NOT_RUN])
        lines.append(row)
    return Sheet(
        _title("Several answers a question", model),
        ["", *map(_name, columns)],
        lines,
        "In %, with 95% intervals over questions, and the difference from the baseline, paired.",
    )


def _other_lines(cell: Cell, gap: Gap | None) -> list[str]:
    return [
        f"{100 * cell.value:.1f}",
        *([_range(cell.interval)] if cell.interval else []),
        *(_gap_lines(gap) if gap else []),
    ]


def _ends(curves: Sequence[MethodCurve]) -> Sheet:
    rows = []
    for curve in curves:
        mean, name = curve.mean, (curve.model, curve.method, curve.trained_on)
        interval = f"({curve.low[-1]:.3f} to {curve.high[-1]:.3f})" if len(curve.runs) > 1 else "one run"
        clocks = (mean.steps[-1], mean.tokens[-1], mean.seconds[-1] / 3600)
        numbers = [f"{value:{form}}" for value, form in zip(clocks, (",.0f", ",.0f", ",.2f"), strict=True)]
        rows.append(
            [[_name(name)], [METRICS[curve.metric]], [f"{mean.value[-1]:.3f}", interval], *([n] for n in numbers)]
        )
    headings = ["", "", "at the end", "steps", "tokens", "hours"]
    caption = (
        "95% intervals of the mean over runs; tokens are those of prompts and completions. Rewards in training are "
        f"means over the last 1/{SMOOTHED} of a curve."
    )
    return Sheet("Training", headings, rows, caption)


def speed_sentence(speed: Speed) -> str:
    """When a method had the baseline's best, in steps, tokens and time; or that it never did."""
    theirs, ours = (
        method_label(speed.against.method),
        _name((speed.curve.model, speed.curve.method, speed.curve.trained_on)),
    )
    best = f"{theirs}'s best {METRICS[speed.curve.metric]} ({speed.level:.3f} at step {speed.baseline['steps']:,.0f})"
    if speed.method is None:
        return f"{ours} never reached {best}."
    ratios = {clock: speed.ratio(clock) for clock in UNITS}
    parts = [f"{_times(ratio)} its {UNITS[clock]}" for clock, ratio in ratios.items() if ratio]
    after = f": after {', '.join(parts)}" if parts else ""
    return f"{ours} reached {best} at step {speed.method['steps']:,.0f}{after}."


def _times(ratio: float) -> str:
    return f"1/{ratio:.2f} of" if ratio >= 1 else f"{1 / ratio:.2f} times"


def _range(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.1f}–{100 * interval[1]:.1f}"


def _name(row: tuple) -> str:
    """Method, and what it was trained on where that is not a column's own task."""
    dataset = row[2] if row[2] not in paper.TRAINED_ON.values() else None
    return method_label(row[1]) + (f" ({dataset})" if dataset else "")


def _title(what: str, model: str | None) -> str:
    return what + (f", {paper.MODELS.get(model, model)}" if model else "")


def rich_table(sheet: Sheet) -> Table:
    """The sheet for a terminal."""
    table = Table(title=sheet.title, caption=sheet.caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_lines=False)
    for i, heading in enumerate(sheet.headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=len(sheet.headings) <= len(paper.TASKS))
    for row in sheet.rows:
        table.add_row(*("\n".join(lines) for lines in row), end_section=len(row[-1]) > 1)
    return table


def markdown(sheet: Sheet) -> str:
    """The sheet as a table of Markdown."""
    lines = [f"## {sheet.title}", "", _markdown_row(sheet.headings), _markdown_row(["---"] * len(sheet.headings))]
    lines += [_markdown_row(["<br>".join(cell) for cell in row]) for row in sheet.rows]
    return "\n".join([*lines, "", sheet.caption, ""])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
