"""The tables of what has been measured on the language model."""

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.language_model import arms
from benchmarks.language_model.arms import ARMS, BASELINE, CONTROL_SEEDS, CONTROLS, RATES, SEEDS, SWEEP_SEEDS, Cell
from benchmarks.language_model.cells import Cells, mean_reward, measured, steps_to, tokens_of
from benchmarks.language_model.rollouts import PLACES
from benchmarks.learning.statistics import interval, iqm
from tempo_trl.data.instructions import KINDS, TRAINED

LEVEL = 0.6
SPAN = 30  # steps of a long run that share a number


def show(cells: Cells, console: Console) -> None:
    """Print what there is: the sweep, the arms over GRPO, held-out pass rates, controls, long runs."""
    if not cells.rows:
        console.print("Nothing has been measured yet.")
        return
    console.print(sweep_table(cells))
    rates = cells.rates()
    if BASELINE in rates:
        console.print(over_grpo(cells, {arm: (rates[arm], rates[BASELINE]) for arm in ARMS if arm in rates}))
        console.print(by_kind(cells, rates))
        console.print(held_out(cells, rates))
        varied = {name: arm for name, arm in CONTROLS.items() if arm.rated_as in rates}
        pairs = {name: (arm.factor * rates[arm.rated_as], rates[BASELINE]) for name, arm in varied.items()}
        console.print(over_grpo(cells, pairs, CONTROL_SEEDS, "Controls"))
    if rows := [row for row in cells.rows if row["steps"] == arms.LONG_STEPS]:
        console.print(long_runs(rows))


def sweep_table(cells: Cells) -> Table:
    """Mean reward over the steps by arm and rate, of the seeds that choose the rates."""
    rates = [rate for rate in RATES if any(cells.of(Cell(arm, rate, SWEEP_SEEDS[0])) for arm in ARMS)]
    table = Table(title=f"Sweep: mean reward over all steps, seeds {SWEEP_SEEDS}", box=SIMPLE_HEAD)
    for heading in ("arm", *(f"{rate:g}" for rate in rates)):
        table.add_column(heading)
    for arm in ARMS:
        own = [[cells.of(Cell(arm, rate, seed)) for seed in SWEEP_SEEDS] for rate in rates]
        table.add_row(arm, *(", ".join(f"{_mean(row['reward']):.3f}" for row in rows if row) for rows in own))
    return table


def over_grpo(
    cells: Cells, rates: dict[str, tuple[float, float]], seeds: Sequence[int] = SEEDS, title: str = "Over GRPO"
) -> Table:
    """Arms over GRPO, paired by seed."""
    table = Table(title=title, caption="interquartile means, 95% bootstrap intervals over seeds", box=SIMPLE_HEAD)
    headings = "arm", "rate", "pairs", "mean reward", "less GRPO's", "by steps", f"steps to {LEVEL}", "seconds a step"
    for heading in headings:
        table.add_column(heading)
    for arm, (rate, base_rate) in rates.items():
        pairs = cells.pairs(arm, rate, base_rate, seeds)
        if pairs:
            seconds = _mean([_mean(row["seconds"]) for row, _ in pairs])
            table.add_row(arm, f"{rate:g}", str(len(pairs)), *compared(pairs), f"{seconds:.0f}")
    return table


def compared(pairs: Sequence[tuple[dict, dict]]) -> tuple[str, str, str, str]:
    """
    Of pairs of an arm's run and GRPO's: mean reward, how much more than GRPO's at equally many tokens and at equally
    many steps, and steps to [`LEVEL`].
    """
    budget = tokens_of(row for pair in pairs for row in pair)
    own = [mean_reward(row, budget) for row, _ in pairs]
    by_tokens = [value - mean_reward(base, budget) for value, (_, base) in zip(own, pairs, strict=True)]
    by_steps = [_mean(row["reward"]) - _mean(base["reward"]) for row, base in pairs]
    arrivals = [steps_to(row, LEVEL) for row, _ in pairs]
    steps = ", ".join("never" if arrival is None else str(arrival) for arrival in arrivals)
    itself = all(row is base for row, base in pairs)
    return measured(own), *("" if itself else measured(gains) for gains in (by_tokens, by_steps)), steps


def by_kind(cells: Cells, rates: dict[str, float]) -> Table:
    """Mean reward of a run's completions of each kind less GRPO's, and on how many kinds the interval excludes 0."""
    table = Table(title="Mean reward by kind, less GRPO's", caption="as above; in points", box=SIMPLE_HEAD)
    for heading in ("arm", *TRAINED, "ahead", "behind"):
        table.add_column(heading)
    for arm in (arm for arm in rates if arm != BASELINE):
        pairs = cells.pairs(arm, rates[arm], rates[BASELINE])
        if pairs:
            gains = [[100 * (own["by_kind"][kind] - base["by_kind"][kind]) for own, base in pairs] for kind in TRAINED]
            low, high = np.array([interval(np.array(own)) for own in gains]).T
            gained = [f"{iqm(own):+.1f} [{a:+.1f}, {b:+.1f}]" for own, a, b in zip(gains, low, high, strict=True)]
            table.add_row(arm, *gained, str((low > 0).sum()), str((high < 0).sum()))
    return table


def held_out(cells: Cells, rates: dict[str, float]) -> Table:
    """Held-out pass rates by kind, and the share of negative credit on decisive tokens."""
    table = Table(title="Held-out pass rates in percent, means over seeds", box=SIMPLE_HEAD)
    for heading in ("arm", *KINDS, "all", "decisive"):
        table.add_column(heading)
    for arm, rate in rates.items():
        rows = [row for row, _ in cells.pairs(arm, rate, rates[BASELINE])]
        if rows:
            shares = [_mean([row["held_out"][kind] for row in rows]) for kind in (*KINDS, "all")]
            on = [row["decisive"]["advantage"] for row in rows if row["decisive"] and row["decisive"]["advantage"]]
            table.add_row(arm, *(f"{100 * share:.0f}" for share in shares), f"{_mean(on):.3f}" if on else "")
    return table


def long_runs(rows: Sequence[dict]) -> Table:
    """What stays and what changes along the long runs: means over [`SPAN`] steps each."""
    table = Table(title=f"{arms.LONG_STEPS} steps, one seed: means of steps", box=SIMPLE_HEAD)
    starts = range(0, arms.LONG_STEPS, SPAN)
    for heading in ("", "arm", *(f"{start + 1} to {start + SPAN}" for start in starts)):
        table.add_column(heading)
    for name in ("reward", "length", "entropy", "distinct"):
        for row in rows:
            table.add_row(name, row["arm"], *(f"{_mean(row[name][start : start + SPAN]):.2f}" for start in starts))
    for row in rows:
        table.add_row("held out", row["arm"], *[""] * (len(starts) - 1), f"{100 * row['held_out']['all']:.0f}%")
    return table


def show_truth(policies: dict[str, dict], console: Console) -> None:
    """Print what true values say of each policy."""
    for name, numbers in policies.items():
        title = f"{name}: {numbers['prompts']} prompts, mean reward {numbers['reward']:.2f}"
        table = Table(title=f"{title}. Share of the rewards' variance decided after n tokens", box=SIMPLE_HEAD)
        for place in PLACES:
            table.add_column(str(place), justify="right")
        table.add_row(*map(_with_ends, numbers["decided_by"]))
        console.print(table)
        table = Table(title="Squared error of values over that of the mean of the others", box=SIMPLE_HEAD)
        for heading in ("estimate", "all places", *(f"after {place}" for place in (0, *PLACES))):
            table.add_column(heading, justify="left" if heading == "estimate" else "right")
        for estimate, own in numbers["errors"].items():
            table.add_row(
                estimate, _with_ends(own["error"]), *("" if x is None else f"{x:.2f}" for x in own["by_place"])
            )
        console.print(table)
        table = Table(title="Share of squared true TD errors", box=SIMPLE_HEAD)
        for heading in numbers["td_errors"]:
            table.add_column(heading, justify="right")
        table.add_row(*map(_with_ends, numbers["td_errors"].values()))
        console.print(table)
        table = Table(title="Gradient of the last MLP's down projection, over RLOO's", box=SIMPLE_HEAD)
        for heading in ("credit", "noise to signal", "cosine with the true gradient"):
            table.add_column(heading)
        for credit, own in numbers["gradient"].items():
            table.add_row(credit, _with_ends(own["noise_to_signal"]), _with_ends(own["cosine"]))
        console.print(table)
        table = Table(title="Sources of the squared norm of a group's RLOO gradient", box=SIMPLE_HEAD)
        for heading in numbers["sources"]:
            table.add_column(heading)
        table.add_row(*map(_with_ends, numbers["sources"].values()))
        console.print(table)


def _with_ends(numbers: Sequence[float]) -> str:
    value, low, high = (float("nan") if number is None else number for number in numbers)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
