"""The output of `tempo-trl compare`: tables in the style of the paper's Table 1, for a terminal and as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tempo_trl.compare import paper
from tempo_trl.compare.table import Cell
from tempo_trl.methods import method_label

NOT_RUN = "not run"
REWARDS = {"reward": "mean reward in training", "eval_reward": "mean reward in evaluation"}
Row = tuple[str | None, str, str | None]  # model, method, dataset


class Sheet(NamedTuple):
    """A table of cells, each with one or more lines of text."""

    title: str
    headings: list[str]
    rows: list[list[list[str]]]
    caption: str


def sheets(cells: Sequence[Cell], trainings: Sequence[dict]) -> list[Sheet]:
    """Table 1 for each model, its other metrics, and the ends of training. Empty tables are left out."""
    found = []
    for model in dict.fromkeys(cell.model for cell in cells):
        own = [cell for cell in cells if cell.model == model]
        primary = _primary(model, own)
        others = [cell for cell in own if cell.metric != primary[cell.task]]
        found += [_accuracies(model, own, primary), _others(model, others)]
    return [sheet for sheet in [*found, _trainings(trainings)] if sheet.rows]


def _primary(model: str | None, cells: Sequence[Cell]) -> dict[str, str]:
    """The main metric of each task: the accuracy, or else what was measured instead. Tasks in the paper's order."""
    measured = {task: [] for task in paper.TASKS} if model in paper.MODELS else {}
    for cell in cells:
        measured.setdefault(cell.task, []).append(cell.metric)
    return {task: "accuracy" if "accuracy" in own or not own else own[0] for task, own in measured.items()}


def _accuracies(model: str | None, cells: Sequence[Cell], primary: dict[str, str]) -> Sheet:
    """A row per method, the paper's among them, and a column per task."""
    of_paper = [(model, method, None) for method in paper.TABLE_1.get(model or "", {})]
    found = {(cell.row, cell.task, cell.metric): cell for cell in cells}
    lines = [
        [[_name(row)], *(_lines(found.get((row, *column)), row, column[0]) for column in primary.items())]
        for row in dict.fromkeys([*of_paper, *(cell.row for cell in cells if cell.metric == primary[cell.task])])
    ]
    headings = [_task(task) + ("" if metric == "accuracy" else f", {metric}") for task, metric in primary.items()]
    caption = (
        "Accuracy in %, with its 95% interval over questions, which does not cover the randomness of training. "
        f"{_against(cells)}"
    )
    if of_paper:
        caption += f" Last the paper's value ({paper.SOURCE})."
    return Sheet(_title("Accuracy", model), ["", *headings], lines, caption)


def _others(model: str | None, cells: Sequence[Cell]) -> Sheet:
    """A row for each task and metric that is not in Table 1, a column per method."""
    rows, found = list(dict.fromkeys(cell.row for cell in cells)), {(c.row, c.task, c.metric): c for c in cells}
    lines = [
        [[f"{_task(task)} {metric}"], *(_lines(found.get((row, task, metric)), row, None) for row in rows)]
        for task, metric in dict.fromkeys((cell.task, cell.metric) for cell in cells)
    ]
    caption = f"In %, with 95% intervals over questions. {_against(cells)}"
    return Sheet(_title("Several answers per question", model), ["", *map(_name, rows)], lines, caption)


def _against(cells: Sequence[Cell]) -> str:
    baseline = next((cell.baseline for cell in cells if cell.baseline), None)
    if baseline is None:
        return "There is no baseline to compare with."
    return (
        f"With a sign: the difference from {method_label(baseline)} in points, with the 95% interval paired over the "
        "questions of both. No interval: the answers were not kept."
    )


def _lines(cell: Cell | None, row: Row, task: str | None) -> list[str]:
    """The lines of one cell: value, runs, difference, and the paper's value for an accuracy of `task`."""
    lines = [NOT_RUN] if cell is None else [f"{100 * cell.value:.1f}"]
    if cell is not None:
        values = [run["value"] for run in cell.runs]
        lines += [_range(cell.interval)] if cell.interval else []
        lines += [f"{len(values)} runs:", _range((min(values), max(values)))] if len(values) > 1 else []
        lines += [f"{100 * cell.difference:+.1f}"] if cell.difference is not None else []
        lines += [_range(cell.paired_interval, "+")] if cell.paired_interval else []
    of_paper = paper.table_1(row[0], row[1], task) if task and row[2] is None else None
    return lines if of_paper is None else [*lines, f"paper {of_paper}"]


def _range(interval: Sequence[float], sign: str = "") -> str:
    return " to ".join(f"{100 * end:{sign}.1f}" for end in interval)


def _trainings(trainings: Sequence[dict]) -> Sheet:
    rows = []
    for own in trainings:
        trained_on = None if own["trained_on"] in paper.TRAINED_ON else own["trained_on"]
        interval = "({:.3f} to {:.3f})".format(*own["interval"]) if own["runs"] > 1 else "one run"
        ends = f"{own['steps']:,.0f}", f"{own['seconds'] / 3600:,.2f}"
        name, reward = _name((own["model"], own["method"], trained_on)), REWARDS[own["metric"]]
        rows.append([[name], [reward], [f"{own['value']:.3f}", interval], *([end] for end in ends)])
    caption = "At the end of training, with 95% intervals of the mean over runs. `tempo-trl report` draws the curves."
    return Sheet("Training", ["", "", "at the end", "steps", "hours"], rows, caption)


def _name(row: Row) -> str:
    """The method, and its training data if the paper did not train on them."""
    return method_label(row[1]) + (f" ({row[2]})" if row[2] else "")


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
