"""Tables, sentences and figures of the demo, computed from the files of the runs."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tempo_trl.demo.methods import BASELINE
from tempo_trl.demo.recipe import GROUP, MAX_LENGTH, UPDATES_PER_GENERATION
from tempo_trl.demo.results import accuracy_curve, difference, wilson
from tempo_trl.demo.slips import most_varied_group, read_generations, slip_shares
from tempo_trl.demo.task import HELD_OUT
from tempo_trl.methods import METHODS, method_colours
from tempo_trl.report.terminal_tree import terminal_tree
from tempo_trl.runs.curves import Curve
from tempo_trl.version import __version__

LEVELS = (0.6, 0.7, 0.8, 0.9)
AXES = {  # clock of a curve: label of the axis, and the clock's units per unit of the axis
    "steps": ("generations (32 prompts x 8 completions)", UPDATES_PER_GENERATION),
    "seconds": ("seconds of training, one core", 1),
}


def show(runs: list, folder: Path, console: Console) -> None:
    """Print the comparison, the credit on slips and one group; write curves.png and results.json to `folder`."""
    names = dict.fromkeys(run.method for run in runs)
    curves = {name: [accuracy_curve(r.folder) for r in runs if r.method == name] for name in names}
    generations = read_generations(next(r.folder for r in runs if r.method == "tempo"), UPDATES_PER_GENERATION)
    gains = {name: difference(own, curves[BASELINE], HELD_OUT) for name, own in curves.items() if name != BASELINE}
    shares = np.sum([slip_shares(generation, GROUP, MAX_LENGTH) for generation in generations], axis=0)

    console.print(comparison(curves))
    for name, gain in gains.items():
        console.print(verdict(METHODS[name].label, gain, len(curves[name])))
    console.print(slip_sentence(shares))
    _print_group(generations[0], console)
    draw(curves, folder / "curves.png")
    _write(curves, gains, shares, folder / "results.json")
    console.print(
        f"\nCurves: {folder / 'curves.png'}   numbers: {folder / 'results.json'}", highlight=False, soft_wrap=True
    )
    console.print(
        f"Completions and metrics of each run: {folder}/*/completions, trainer_state.json",
        highlight=False,
        soft_wrap=True,
    )


def comparison(curves: dict[str, list[Curve]]) -> Table:
    """Accuracy before and after training, and the time to given accuracies, with one column per method."""
    seeds = len(curves["tempo"])
    table = Table(
        title=f"Accuracy on {HELD_OUT} held-out problems, sampled at temperature 1, {seeds} seed(s)",
        caption="95% intervals of sampling; times are means over the seeds that reached the accuracy",
        box=SIMPLE_HEAD,
    )
    for heading in ("", *(METHODS[name].label for name in curves)):
        table.add_column(heading, justify="right")
    for label, i in (("before", 0), ("after", -1)):
        means = (float(np.mean([curve.value[i] for curve in own])) for own in curves.values())
        table.add_row(label, *(_with_interval(mean, HELD_OUT * seeds) for mean in means))
    for level in LEVELS:
        table.add_row(f"to {level:.0%}", *(_time_cell(own, level) for own in curves.values()))
    return table


def _with_interval(accuracy: float, n: int) -> str:
    low, high = wilson(accuracy, n)
    return f"{accuracy:.1%} ({low:.1%} to {high:.1%})"


def _time_cell(curves: list[Curve], level: float) -> str:
    times = [(curve.time_to(level, "steps"), curve.time_to(level, "seconds")) for curve in curves]
    reached = [pair for pair in times if pair[0] is not None]
    if not reached:
        return "not reached"
    steps, seconds = np.mean(reached, axis=0)
    some = "" if len(reached) == len(times) else f" ({len(reached)} of {len(times)} seeds)"
    return f"{steps / UPDATES_PER_GENERATION:.1f} generations, {seconds:.0f} s{some}"


def verdict(name: str, gain: tuple[float, float, float], seeds: int) -> str:
    """A sentence on the difference of a method from GRPO, and whether it is more than noise."""
    mean, low, high = gain
    kind = "over seeds" if seeds > 1 else "of sampling only: one seed does not show how runs vary"
    sentence = f"{name} - GRPO after training: {mean:+.3f} (95% interval {low:+.3f} to {high:+.3f}, {kind})"
    better = name if low > 0 else "GRPO" if high < 0 else None
    return sentence + (f": {better} is ahead by more than noise." if better else ": not more than noise.")


def slip_sentence(shares: np.ndarray) -> str:
    """A sentence on the share of negative credit on the first wrong token."""
    (td_slip, td_all), (outcome_slip, outcome_all) = shares
    return (
        f"{td_slip / td_all:.0%} of TEMPO's negative TD credit is on the first slip of a wrong solution; for GRPO's "
        f"outcome credit, which is spread evenly, it is {outcome_slip / outcome_all:.0%}."
    )


def _print_group(generation, console: Console) -> None:
    group = most_varied_group(generation, GROUP)
    pieces = [list(text) for text in generation.completions[group]]
    console.print(f"\nA group of the first generation: {GROUP} answers to one problem:")
    console.print(terminal_tree(pieces, generation.rewards[group].tolist(), generation.prompts[group][0]))


def draw(curves: dict[str, list[Curve]], path: Path) -> None:
    """Accuracy against generations and seconds: a thin line per seed, and the bold mean with its 95% band."""
    figure, colours = Figure(figsize=(10, 4), layout="constrained"), method_colours(list(curves))
    for axes, clock in zip(figure.subplots(1, 2, sharey=True), AXES, strict=True):
        for name, own in curves.items():
            _draw_method(axes, own, clock, colours[name], METHODS[name].label)
        axes.set_xlabel(AXES[clock][0])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel(f"accuracy, {HELD_OUT} held-out problems")
    figure.axes[0].legend(loc="lower right", frameon=False)
    figure.suptitle("Chained arithmetic with slips, all from the same starting policy")
    figure.savefig(path, dpi=150)


def _draw_method(axes, curves: list[Curve], clock: str, colour: str, name: str) -> None:
    times = [getattr(curve, clock) / AXES[clock][1] for curve in curves]
    mean = np.mean([curve.value for curve in curves], axis=0)
    low, high = np.array([wilson(float(accuracy), HELD_OUT * len(curves)) for accuracy in mean]).T
    if len(curves) > 1:
        for time, curve in zip(times, curves, strict=True):
            axes.plot(time, curve.value, color=colour, linewidth=0.7, alpha=0.6)
    axes.plot(np.mean(times, axis=0), mean, color=colour, linewidth=2.2, label=name)
    axes.fill_between(np.mean(times, axis=0), low, high, color=colour, alpha=0.15, linewidth=0)


def _write(curves: dict, gains: dict, shares: np.ndarray, path: Path) -> None:
    """Write all printed numbers as JSON."""
    (td_slip, td_all), (outcome_slip, outcome_all) = shares
    runs = [
        {
            "method": name,
            "seed": seed,
            "generations": curve.steps / UPDATES_PER_GENERATION,
            "seconds": curve.seconds,
            "accuracy": curve.value,
        }
        for name, own in curves.items()
        for seed, curve in enumerate(own)  # runs of a method are ordered by seed
    ]
    numbers = {
        "tempo_trl": __version__,
        "runs": runs,
        "difference": {name: dict(zip(("mean", "low", "high"), gain, strict=True)) for name, gain in gains.items()},
        "negative_credit_on_first_slips": {"td": td_slip / td_all, "outcome": outcome_slip / outcome_all},
    }
    path.write_text(json.dumps(numbers, indent=2, default=np.ndarray.tolist))
