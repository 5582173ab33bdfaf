"""The output of `tempo-trl compare`: tables in the style of the paper's Table 1, for a terminal and as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tempo_trl.compare import paper
from tempo_trl.compare.curves import METRICS, SMOOTHED, MethodCurve
from tempo_trl.methods import method_label

NOT_RUN = "not run"
UNITS = {"steps": "steps", "tokens": "tokens", "seconds": "time"}


class Sheet(NamedTuple):
    """A table of cells, each with one or more lines of text."""

    title: str
    headings: list[str]
    rows: list[list[list[str]]]
    caption: str


def sheets(table: pd.DataFrame, curves: Sequence[MethodCurve]) -> list[Sheet]:
    """Table 1 and the differences for each model, other metrics, and the ends of curves. Empty tables are left out."""
    found = []
    for _, own in table.groupby("model", sort=False, dropna=False):
        model, primary = own.model.iloc[0], _primary(own)
        is_primary = own.metric == own.task.map(primary)
        found += [
            _accuracies(model, own[is_primary], primary),
            _differences(model, own[is_primary & own.baseline.notna()], primary),
            _others(model, own[~is_primary]),
        ]
    return [sheet for sheet in [*found, _ends(curves)] if sheet.rows]


def _primary(table: pd.DataFrame) -> dict[str, str]:
    """The main metric of each task: the accuracy, or else what was measured instead. Tasks in the paper's order."""
    in_paper = table.model.iloc[0] in paper.MODELS
    measured = {task: [] for task in paper.TASKS} if in_paper else {}
    measured |= table.groupby("task", sort=False).metric.agg(list).to_dict()
    return {task: "accuracy" if "accuracy" in own or not own else own[0] for task, own in measured.items()}


def _headings(primary: dict[str, str]) -> list[str]:
    return ["", *(_task(task) + ("" if metric == "accuracy" else f", {metric}") for task, metric in primary.items())]


def _rows(table: pd.DataFrame) -> list[tuple[str | None, str, str | None]]:
    """(model, method, dataset) of each printed row."""
    return list(dict.fromkeys(zip(table.model, table.method, table.dataset, strict=True)))


def _cells(table: pd.DataFrame) -> dict[tuple, tuple]:
    """The rows of the frame as named tuples, by their printed row, task and metric."""
    return {((cell.model, cell.method, cell.dataset), cell.task, cell.metric): cell for cell in table.itertuples()}


def _accuracies(model: str | None, table: pd.DataFrame, primary: dict[str, str]) -> Sheet:
    cells, of_paper = _cells(table), [(model, method, None) for method in paper.TABLE_1.get(model, {})]
    lines = [
        [[_name(row)], *(_accuracy(cells.get((row, *column)), row, column[0]) for column in primary.items())]
        for row in dict.fromkeys([*of_paper, *_rows(table)])
    ]
    caption = "Accuracy in %, with its 95% interval over questions, which does not cover the randomness of training."
    if of_paper:
        caption += f" Below it, the paper's value ({paper.SOURCE})."
    return Sheet(_title("Accuracy", model), _headings(primary), lines, caption)


def _accuracy(cell: tuple | None, row: tuple, task: str) -> list[str]:
    lines = _value(cell) if cell else [NOT_RUN]
    values = [run["value"] for run in cell.runs] if cell else []
    if len(values) > 1:
        lines += [f"{len(values)} runs:", _range((min(values), max(values)))]
    of_paper = None if row[2] else paper.table_1(row[0], row[1], task)
    return lines if of_paper is None else [*lines, f"paper {of_paper}"]


def _value(cell: tuple) -> list[str]:
    return [f"{100 * cell.value:.1f}", *([_range(cell.interval)] if cell.interval else [])]


def _differences(model: str | None, table: pd.DataFrame, primary: dict[str, str]) -> Sheet:
    cells = _cells(table)
    lines = [
        [[_name(row)], *(_difference(cells.get((row, *column))) for column in primary.items())] for row in _rows(table)
    ]
    baseline = "" if table.empty else method_label(table.baseline.iloc[0])
    caption = "Points, with 95% intervals paired over the questions of both. No interval: the answers were not kept."
    return Sheet(_title(f"Difference from {baseline}", model), _headings(primary), lines, caption)


def _difference(cell: tuple | None) -> list[str]:
    if cell is None:
        return [NOT_RUN]
    lines = [f"{100 * cell.difference:+.1f}"]
    if cell.paired_interval:
        lines.append("{:+.1f} to {:+.1f}".format(*(100 * end for end in cell.paired_interval)))
    return [*lines, *([f"paper {100 * cell.paper_difference:+.1f}"] if cell.paper_difference is not None else [])]


def _others(model: str | None, table: pd.DataFrame) -> Sheet:
    """A row for each task and metric that is not in Table 1, a column per method."""
    cells, columns = _cells(table), _rows(table)
    lines = [
        [[f"{_task(task)} {metric}"], *(_other(cells.get((column, task, metric))) for column in columns)]
        for task, metric in dict.fromkeys(zip(table.task, table.metric, strict=True))
    ]
    caption = "In %, with 95% intervals over questions, and the difference from the baseline, paired."
    return Sheet(_title("Several answers per question", model), ["", *map(_name, columns)], lines, caption)


def _other(cell: tuple | None) -> list[str]:
    if cell is None:
        return [NOT_RUN]
    return [*_value(cell), *(_difference(cell) if cell.baseline else [])]


def _ends(curves: Sequence[MethodCurve]) -> Sheet:
    rows = []
    for curve in curves:
        mean, name = curve.mean, _name((curve.model, curve.method, curve.trained_on))
        interval = f"({curve.low[-1]:.3f} to {curve.high[-1]:.3f})" if len(curve.runs) > 1 else "one run"
        clocks = f"{mean.steps[-1]:,.0f}", f"{mean.tokens[-1]:,.0f}", f"{mean.seconds[-1] / 3600:,.2f}"
        rows.append([[name], [METRICS[curve.metric]], [f"{mean.value[-1]:.3f}", interval], *([n] for n in clocks)])
    caption = (
        "95% intervals of the mean over runs. Tokens include prompts and completions. Training rewards are means over "
        f"the last 1/{SMOOTHED} of a curve."
    )
    return Sheet("Training", ["", "", "at the end", "steps", "tokens", "hours"], rows, caption)


def speed_sentence(speed: dict) -> str:
    """When a method reached the baseline's best value, in steps, tokens and time, or that it never did."""
    theirs, ours = method_label(speed["baseline"]), _name((speed["model"], speed["method"], speed["trained_on"]))
    at = f"{speed['level']:.3f} at step {speed['baseline_at']['steps']:,.0f}"
    best = f"{theirs}'s best {METRICS[speed['metric']]} ({at})"
    if speed["method_at"] is None:
        return f"{ours} never reached {best}."
    parts = [f"{_times(ratio)} its {UNITS[clock]}" for clock, ratio in speed["times_as_fast"].items() if ratio]
    after = f": after {', '.join(parts)}" if parts else ""
    return f"{ours} reached {best} at step {speed['method_at']['steps']:,.0f}{after}."


def _times(ratio: float) -> str:
    return f"1/{ratio:.2f} of" if ratio >= 1 else f"{1 / ratio:.2f} times"


def _range(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.1f}–{100 * interval[1]:.1f}"


def _name(row: tuple) -> str:
    """The method, and its training data if the paper did not train on them."""
    dataset = row[2] if row[2] not in paper.TRAINED_ON.values() else None
    return method_label(row[1]) + (f" ({dataset})" if dataset else "")


def _task(task: str) -> str:
    return paper.TASKS.get(task, task)


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
