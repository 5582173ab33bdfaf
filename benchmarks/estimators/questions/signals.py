"""How well logged metrics predict the gain: `tempo/added_share` and `tempo/prefix_r2`, on random tasks."""

from itertools import islice

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks.estimators.drawing import BLUE, GAIN, ORANGE, bars, gains, named, sheet
from benchmarks.estimators.estimators import METHODS, learning, outcome
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import SEED, WARM_UP, measure_groups, sampled
from benchmarks.estimators.metrics import gain
from benchmarks.estimators.questions.adaptive import random_tasks
from benchmarks.estimators.rollouts import Independent, Sample
from benchmarks.estimators.task import Task
from tempo_trl.credit.advantages import credit_tokens
from tempo_trl.credit.metrics import credit_sums

TITLE = "What a run logs in fifty generations, and the gain: random tasks"
BATCHES = 50
SIGNALS = {"td_share": "tempo/added_share", "prefix_explained": "tempo/prefix_r2"}
COLOURS = {"TEMPO": ORANGE, "adaptive": BLUE}


def measure_records(effort: Effort) -> list[dict]:
    return [_record(task, size, effort) for task, size in random_tasks(effort)]


def _record(task: Task, size: int, effort: Effort) -> dict:
    tree, m = task.tree(), measure_groups(task, size, METHODS, effort.batches, effort.budget)
    ours = {f"{name} gain": gain(m[name], m["GRPO"], tree.gradient) for name in COLOURS}
    return {"G": size, **logged(sampled(tree, Independent(size), effort.batches, SEED, effort.budget)), **ours}


def logged(sample: Sample) -> dict[str, float]:
    """The two metrics as trainers log them, a mean over the batches after the warm-up."""
    outcomes = outcome(sample)
    _, td = credit_tokens(sample.prefixes, outcomes, sample.ids.shape[1], 1.0)
    after = slice(int(sample.bounds[WARM_UP]), None)
    share, whole = credit_sums(outcomes[after], td[after], torch.ones_like(td[after]))["added_share"].sum(dim=0)
    explained = [covariance.explained for _, covariance in islice(learning(sample), WARM_UP, None)]
    return {"td_share": float(share / whole), "prefix_explained": float(np.mean(explained))}


def correlation(records: list[dict], signal: str, method: str) -> float:
    """Spearman's, of a signal with a method's gain."""
    return float(spearmanr([r[signal] for r in records], [r[f"{method} gain"][0] for r in records]).statistic)


def bands(records: list[dict], signal: str) -> list[tuple[float, float, list[dict]]]:
    """The records in quarters by a signal: lowest and highest value, and the records."""
    rows = sorted(records, key=lambda r: r[signal])
    quarters = [part for part in np.array_split(np.arange(len(rows)), 4) if len(part)]
    return [(rows[part[0]][signal], rows[part[-1]][signal], [rows[i] for i in part]) for part in quarters]


def table(records: list[dict]) -> Table:
    table = Table(
        title=TITLE, caption="gain: GRPO's error / this one's; medians and worst of each quarter of the tasks"
    )
    columns = ("signal", "from", "to", *(f"{name}, {what}" for name in COLOURS for what in ("median", "worst")))
    for column in columns:
        table.add_column(column, justify="right")
    for signal, name in SIGNALS.items():
        for low, high, rows in bands(records, signal):
            table.add_row(name, f"{low:.3f}", f"{high:.3f}", *(text for m in COLOURS for text in _gains(rows, m)))
        ranks = [text for m in COLOURS for text in (f"{correlation(records, signal, m):.2f}", "")]
        table.add_row("", "", "rank corr.", *ranks, style="dim")
    return table


def _gains(rows: list[dict], method: str) -> tuple[str, str]:
    pairs = sorted(r[f"{method} gain"] for r in rows)
    return f"{np.median([value for value, _ in pairs]):.2f}", f"{pairs[0][0]:.2f} ± {pairs[0][1]:.2f}"


def draw(records: list[dict]) -> Figure:
    figure, panels = sheet(TITLE, tuple(SIGNALS.values()), sharey=True)
    for axes, signal in zip(panels, SIGNALS, strict=True):
        for method in COLOURS:
            _points(axes, records, signal, method)
        gains(axes, (0.5, 0.7, 1, 1.4, 2, 4, 8, 16))
        named(axes, SIGNALS[signal], GAIN if signal == "td_share" else "")
    return figure


def _points(axes: Axes, records: list[dict], signal: str, method: str) -> None:
    points = [r[signal] for r in records], [r[f"{method} gain"] for r in records]
    bars(axes, *points, COLOURS[method], linestyle="", markersize=3.5, elinewidth=0.8, capsize=0, alpha=0.8)
    said = f"{method}: rank correlation {correlation(records, signal, method):.2f}"
    height = 0.94 - 0.07 * list(COLOURS).index(method)
    axes.annotate(said, (0.04, height), xycoords="axes fraction", color=COLOURS[method], fontsize=8)
