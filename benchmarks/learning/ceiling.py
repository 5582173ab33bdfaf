"""Maps of tasks by batch sizes: what perfect credit leads GRPO by, and what the best method does.

Each task is a study of its own. The figure is made from the numbers of all of them, so it grows with each.
"""

import json
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.learning.arms import BASELINE, ORACLES
from benchmarks.learning.figures import save, seeds
from benchmarks.learning.results import Measured, Result, baseline_of, leader, read_results
from benchmarks.learning.show import caption

NAME = "learning_ceiling"


def draw(folder: Path) -> Path:
    """Draw the figure from the numbers in `folder`; its path."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{NAME}_*.json"))]
    results = [result for part in parts for result in read_results(part)]
    figure = maps(results)
    figure.suptitle(f"What perfect credit gains over GRPO, and what the methods gain ({seeds(results)})", fontsize=11)
    save(figure, folder / f"{NAME}.png", caption(_origin(parts)))
    return folder / f"{NAME}.png"


def _origin(parts: Sequence[dict]) -> dict:
    """The provenance of all studies in one."""
    command = parts[0]["command"].replace(parts[0]["study"], " ".join(part["study"] for part in parts))
    union = {name: sorted(set(chain(*(part[name] for part in parts)))) for name in ("commits_of_runs", "seeds")}
    return {"command": command, "machine": parts[0]["machine"], **union}


def maps(results: Sequence[Result]) -> Figure:
    """Two maps with a cell a panel: the lead over GRPO of the better oracle, and of the best method."""
    panels = {name: [one for one in results if one.arm.panel == name] for name in (one.arm.panel for one in results)}
    methods = {one.arm.label for one in results} - {BASELINE, *ORACLES}
    cells = [{name: _lead(own, labels) for name, own in panels.items()} for labels in (ORACLES, methods)]
    limit = 1.7 * max(abs(lead.iqm) for own in cells for _, lead in own.values()) or 1.0  # text stays legible
    figure = Figure(figsize=(10, 1.6 + 0.45 * len(panels)), layout="constrained")
    titles = ("the better oracle's lead over GRPO, points", "the best method's lead over GRPO, points")
    for axes, own, title in zip(figure.subplots(1, 2, sharey=True), cells, titles, strict=True):
        _map(axes, own, limit)
        axes.set_title(title, fontsize=10)
    return figure


def _lead(own: Sequence[Result], labels: Collection[str]) -> tuple[str, Measured]:
    """The leader of a panel among these labels, and its lead over GRPO."""
    best = leader(own, labels)
    return best.arm.label, best.over(baseline_of(best, own))


def _map(axes: Axes, cells: dict[str, tuple[str, Measured]], limit: float) -> None:
    """A cell a panel, in the row and column that its name gives; colours from -`limit` to `limit`."""
    places = {panel: tuple(panel.split(", ")) for panel in cells}
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*places.values(), strict=True))
    leads = np.full((len(rows), len(columns)), np.nan)
    for panel, (label, lead) in cells.items():
        row, column = rows.index(places[panel][0]), columns.index(places[panel][1])
        leads[row, column] = lead.iqm
        axes.text(column, row, f"{lead.percent(signed=True)}\n{label}", ha="center", va="center", fontsize=9)
    axes.imshow(leads, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
