"""The figure of the runs that count: what the policy earns and writes along training, an arm a line."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.language_model.arms import ARMS, SEEDS, Cell
from benchmarks.language_model.cells import Cells, smooth
from benchmarks.learning.figures import STYLES, finish, name_lines, save
from benchmarks.learning.statistics import interval, iqm

SHOWN = {
    "reward": "mean reward, of three steps",
    "length": "tokens of a completion",
    "entropy": "entropy of a token, nats",
    "distinct": "share of distinct words in a step",
}
MORE_STYLES = {
    "grpo_lambda without trace": ("#E69F00", "--"),
    "hidden_baseline": ("#56B4E9", "-"),
    "hidden_td": ("#56B4E9", "--"),
    "shear": ("#CC79A7", "--"),
}


def draw(cells: Cells, path: Path) -> bool:
    """Draw the arms that have runs of at least two seeds, as a PNG file; False if there is none."""
    rates = cells.rates()
    rows = {arm: [cells.of(Cell(arm, rates[arm], seed)) for seed in SEEDS] for arm in ARMS if arm in rates}
    rows = {arm: found for arm, own in rows.items() if len(found := [row for row in own if row]) > 1}
    if not rows:
        return False
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(2, 2).flat, SHOWN.items(), strict=True):
        ends = [_line(axes, arm, own, name) for arm, own in rows.items() if all(row.get(name) for row in own)]
        axes.set_xlabel("steps")
        axes.set_ylabel(label)
        finish(axes)
        if ends:
            name_lines(axes, ends)
    counts = {len(own) for own in rows.values()}
    seeds = " or ".join(map(str, sorted(counts)))
    figure.suptitle(f"SmolLM2-135M-Instruct on instructions ({seeds} seeds, interquartile means, 95% bootstrap bands)")
    save(figure, path, f"python -m benchmarks.language_model show   {_origin(cells)}")
    return True


def _origin(cells: Cells) -> str:
    origin = cells.provenance
    commits = ", ".join(commit[:7] for commit in origin["commits_of_runs"])
    return f"runs at commit {commits}, seeds {origin['seeds'][0]}-{origin['seeds'][-1]}, {origin['machine']}"


def _line(axes, arm: str, rows: list[dict], name: str) -> tuple[float, float, str, str]:
    """A line with its band; where it ends, and what it is called."""
    series = np.array([smooth(row[name]) for row in rows])
    steps, mean, (low, high) = np.arange(series.shape[1]) + 3, iqm(series), interval(series)
    colour, line = (STYLES | MORE_STYLES)[arm]
    axes.plot(steps, mean, line, color=colour, lw=1.6)
    axes.fill_between(steps, low, high, color=colour, alpha=0.1, lw=0)
    return steps[-1], mean[-1], arm, colour
