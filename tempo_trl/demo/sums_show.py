"""What the demo shows of `sums`: methods at equal numbers of sampled tokens, and their credit on slips."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tempo_trl.demo.results import (
    GROUP,
    MAX_LENGTH,
    UPDATES_PER_GENERATION,
    accuracy_curve,
    difference,
    wilson,
)
from tempo_trl.demo.run import BASELINE, Run
from tempo_trl.demo.slips import most_varied_group, read_generations, slip_shares
from tempo_trl.demo.task import HELD_OUT
from tempo_trl.methods import method_colours, method_label
from tempo_trl.report.terminal_tree import terminal_tree
from tempo_trl.runs.curves import Curve, band
from tempo_trl.version import __version__

CREDITED = "tempo"  # the method whose credit on slips is shown
LEVELS = (0.7, 0.9)
AXES = {  # clock of a curve: label of the axis, and the clock's units per unit of the axis
    "tokens": ("thousand sampled tokens", 1000),
    "seconds": ("seconds of training, one core", 1),
}
Curves = dict[str, list[Curve]]  # of each method, by seed


def show(runs: list[Run], folder: Path, console: Console) -> None:
    """Print the comparison, the credit on slips and one group; write curves.png and results.json to `folder`."""
    methods = dict.fromkeys(run.method for run in runs)
    curves = {name: [accuracy_curve(run.folder) for run in runs if run.method == name] for name in methods}
    budget = min(curve.tokens[-1] for own in curves.values() for curve in own)
    spent = {name: [curve.at(budget) for curve in own] for name, own in curves.items()}
    others = [name for name in methods if name != BASELINE] if BASELINE in methods else []
    gains = {name: difference(spent[name], spent[BASELINE], HELD_OUT) for name in others}

    console.print(comparison(spent, budget))
    for name, gain in gains.items():
        console.print(verdict(method_label(name), gain, len(spent[name])))
    shares = None
    if CREDITED in methods:
        first = next(run.folder for run in runs if run.method == CREDITED)
        shares = _show_credit(first, console)
    draw(curves, folder / "curves.png")
    _write(curves, budget, gains, shares, folder / "results.json")
    for what, name in (("\nCurves", "curves.png"), ("Numbers", "results.json")):
        console.print(f"{what}: {folder / name}", highlight=False, soft_wrap=True)


def comparison(curves: Curves, budget: float) -> Table:
    """A row per method: accuracy before and after training, and the generations until it rose to [`LEVELS`]."""
    seeds = len(next(iter(curves.values())))
    table = Table(
        title=f"Accuracy in % after {budget / 1000:,.0f} thousand sampled tokens, {HELD_OUT} held-out problems",
        caption=f"{seeds} seed(s) at temperature 1; 95% intervals; to an accuracy: in generations",
        box=SIMPLE_HEAD,
    )
    levels = (f"to {100 * level:.0f}" for level in LEVELS)
    for heading in ("method", "before", "after", *levels, "time"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for name, own in curves.items():
        table.add_row(method_label(name), *_cells(own))
    return table


def _cells(curves: list[Curve]) -> list[str]:
    before, after = (float(np.mean([curve.value[i] for curve in curves])) for i in (0, -1))
    low, high = wilson(after, HELD_OUT * len(curves))
    mean, seconds = band(curves)[0], np.mean([curve.seconds[-1] for curve in curves])
    steps = [mean.time_to(level, "steps") for level in LEVELS]
    generations = ["never" if own is None else f"{own / UPDATES_PER_GENERATION:.1f}" for own in steps]
    percent = [f"{100 * share:.1f}" for share in (before, after, low, high)]
    return [percent[0], "{} ({} to {})".format(*percent[1:]), *generations, f"{seconds:.0f} s"]


def verdict(name: str, gain: tuple[float, float, float], seeds: int) -> str:
    """A sentence on the difference of a method from GRPO, and whether it is more than noise."""
    mean, low, high = gain
    kind = "over seeds" if seeds > 1 else "of sampling only: one seed does not show how runs vary"
    sentence = f"{name} - GRPO after training: {mean:+.3f} (95% interval {low:+.3f} to {high:+.3f}, {kind})"
    better = name if low > 0 else "GRPO" if high < 0 else None
    return sentence + (f": {better} is ahead by more than noise." if better else ": not more than noise.")


def _show_credit(folder: Path, console: Console) -> np.ndarray:
    """Print where a run's negative credit fell, and one of its groups. Returns the shares of `slip_shares`."""
    generations = read_generations(folder, UPDATES_PER_GENERATION)
    shares = np.sum([slip_shares(generation, GROUP, MAX_LENGTH) for generation in generations], axis=0)
    console.print(slip_sentence(shares))
    first = generations[0]
    group = most_varied_group(first, GROUP)
    pieces = [list(text) for text in first.completions[group]]
    console.print(f"\nA group of the first generation: {GROUP} answers to one problem:")
    console.print(terminal_tree(pieces, first.rewards[group].tolist(), first.prompts[group][0]))
    return shares


def slip_sentence(shares: np.ndarray) -> str:
    """A sentence on the share of negative credit on the first wrong token."""
    (td_slip, td_all), (outcome_slip, outcome_all) = shares
    return (
        f"{td_slip / td_all:.0%} of TEMPO's negative TD credit is on the first slip of a wrong solution; for GRPO's "
        f"outcome credit, which is spread evenly, it is {outcome_slip / outcome_all:.0%}."
    )


def draw(curves: Curves, path: Path) -> None:
    """Accuracy against tokens and seconds: a thin line per seed, and the bold mean with its 95% band."""
    figure, colours = Figure(figsize=(10, 4), layout="constrained"), method_colours(list(curves))
    for axes, (clock, (label, unit)) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        for name, own in curves.items():
            _draw_method(axes, own, clock, unit, {"color": colours[name], "label": method_label(name)})
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel(f"accuracy, {HELD_OUT} held-out problems")
    figure.axes[0].legend(loc="lower right", frameon=False)
    figure.suptitle("Chained arithmetic with slips, all from the same starting policy")
    figure.savefig(path, dpi=150)


def _draw_method(axes, curves: list[Curve], clock: str, unit: float, style: dict) -> None:
    mean = band(curves)[0]
    low, high = np.array([wilson(float(accuracy), HELD_OUT * len(curves)) for accuracy in mean.value]).T
    at = getattr(mean, clock) / unit
    if len(curves) > 1:
        for curve in curves:
            axes.plot(getattr(curve, clock) / unit, curve.value, color=style["color"], linewidth=0.7, alpha=0.6)
    axes.plot(at, mean.value, linewidth=2.2, **style)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _write(curves: Curves, budget: float, gains: dict, shares: np.ndarray | None, path: Path) -> None:
    """Write all printed numbers as JSON."""
    runs = [
        {
            "method": name,
            "seed": seed,
            "tokens": curve.tokens,
            "seconds": curve.seconds,
            "accuracy": curve.value,
            "accuracy_at_budget": float(curve.at(budget).value[-1]),
        }
        for name, own in curves.items()
        for seed, curve in enumerate(own)  # runs of a method are ordered by seed
    ]
    numbers = {
        "tempo_trl": __version__,
        "sampled_tokens": float(budget),
        "runs": runs,
        "difference": {name: dict(zip(("mean", "low", "high"), gain, strict=True)) for name, gain in gains.items()},
    }
    if shares is not None:
        td, outcome = shares[:, 0] / shares[:, 1]
        numbers["negative_credit_on_first_slips"] = {"td": td, "outcome": outcome}
    path.write_text(json.dumps(numbers, indent=2, default=np.ndarray.tolist))
