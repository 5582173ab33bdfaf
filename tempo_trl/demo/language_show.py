"""What the demo shows of a language model on any task: held-out answers, credit by token, curves, the report."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.text import Text

from tempo_trl.demo.language_task import LanguageTask, answers_of, prompts_of
from tempo_trl.demo.results import wilson
from tempo_trl.methods import method_colours, method_label
from tempo_trl.report.command import report
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.runs.token_text import readable, visible
from tempo_trl.runs.trees import recorded_steps

# Blue for good and orange for bad, which colour-blind people can tell apart.
GOOD, BAD, EVEN = "dodger_blue1", "dark_orange", "grey62"


def show(task: LanguageTask, runs: list, folder: Path, console: Console) -> None:
    """Print what changed; write curves.png, results.json and report.html to `folder`."""
    numbers, shares = task.show(runs, console), {run.method: run.shares() for run in runs}
    draw(task, shares, folder / "curves.png")
    steps = {method: {task.measure: own} | numbers["runs"][method] for method, own in shares.items()}
    (folder / "results.json").write_text(json.dumps(numbers | {"runs": steps}, indent=2))
    path = report([run.folder for run in runs], folder / "report.html")
    for what, name in (("Curves", "curves.png"), ("Numbers", "results.json")):
        console.print(f"{what}: {folder / name}", highlight=False, soft_wrap=True)
    console.print(f"\nCredit per token: open {path} in a browser.", style="bold", highlight=False, soft_wrap=True)


def held_out_answers(task: LanguageTask, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """
    TRL's tables of a run's answers to held-out prompts before and after, with the columns `asked` and `answer` more.

    TRL keeps as many rows as a generation has: all that were answered if they are not more, and among them rows of
    training if they are fewer, which are left out.

    Raises:
        ValueError: the tables are not of the same prompts.
    """
    files, held_out = sorted((folder / "completions").glob("completions_*.parquet")), task.held_out_prompts()
    tables = [pd.read_parquet(file) for file in (files[0], files[-1])]
    tables = [table.assign(asked=prompts_of(table), answer=answers_of(table)) for table in tables]
    before, after = (table[table["asked"].isin(held_out)].reset_index(drop=True) for table in tables)
    if before.empty or before["asked"].tolist() != after["asked"].tolist():
        raise ValueError(
            f"{folder} has no answers of the trained policy to the held-out {task.name}. Remove the folder, and train "
            "again."
        )
    return before, after


def rate(share: float, n: int) -> str:
    """A share of `n` with its 95% Wilson interval, in percent."""
    low, high = wilson(share, n)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def all_groups(folder: Path) -> list[Group]:
    """All groups that a run recorded in training."""
    return [group for step in recorded_steps(folder) for group in recorded_groups(folder, step)]


def in_colours_of(pieces: Sequence[str], credit: np.ndarray, scale: float) -> Text:
    """Tokens in the colours of their credit; bold above 0.6 `scale`."""
    text = Text()
    for piece, own in zip(readable(pieces), credit, strict=True):
        strong = "bold " if abs(own) > 0.6 * scale else ""
        colour = EVEN if abs(own) < 1e-6 else GOOD if own > 0 else BAD
        text.append(on_one_line(piece), style=strong + colour)
    return text


def on_one_line(piece: str) -> str:
    """A part of a text, with symbols for what is invisible and for line breaks."""
    return visible(piece).replace("\n", "⏎").replace("\t", "⇥")


def draw(task: LanguageTask, shares: dict[str, Sequence[float]], path: Path) -> None:
    """The task's measure at each step, a line per method."""
    figure, colours = Figure(figsize=(6, 3.5), layout="constrained"), method_colours(list(shares))
    axes = figure.subplots()
    for method, own in shares.items():
        axes.plot(range(1, len(own) + 1), own, color=colours[method], label=method_label(method), marker=".")
    last = max(map(len, shares.values()))
    axes.set(xlabel="steps", ylabel=task.measure, xlim=(0.5, last + 0.5), ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.suptitle(task.title)
    figure.savefig(path, dpi=150)
