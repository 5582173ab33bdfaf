"""The tables of what has been measured on the language model."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.language_model.arms import BASELINE
from benchmarks.language_model.cells import Cells, measured
from benchmarks.language_model.criteria import OF_ALL
from benchmarks.learning.statistics import interval, iqm

Pairs = dict[str, list[tuple[dict, dict]]]  # by arm, its runs and GRPO's of the same seeds

FIRST, LAST = 8, 4  # steps at the start and at the end of a run that a table tells apart
# Of a task with criteria: what is said of a run beside its rewards.
SIGNS = {
    "entropy": "entropy",
    "td_share": "added share",
    "prefix_explained": "prefix R2",
    "shared_prefix": "shared prefix",
    "length": "tokens",
    "truncated": "truncated",
    "flat_groups": "flat groups",
    "pass": "pass@8",
    "distinct": "distinct right",
}


def show(cells: Cells, console: Console) -> None:
    """Print what there is."""
    if not cells.rows:
        console.print("Nothing has been measured yet.")
    for table in tables(cells):
        console.print(table)


def tables(cells: Cells) -> Iterator[Table]:
    """The sweep, the arms over GRPO, held-out pass rates: of what has been measured."""
    rates, study = cells.rates(), cells.study
    if cells.rows and study.is_swept:
        yield sweep_table(cells)
    pairs = with_grpo(cells, rates, rates[BASELINE], study.seeds) if BASELINE in rates else {}
    if pairs:
        yield over_grpo(pairs)
        if study.has_criteria:
            yield by_phase(pairs)
            yield by_criterion(pairs)
        yield held_out(pairs, alone(cells))
        if study.has_criteria:
            yield signs(pairs)


def with_grpo(cells: Cells, rates: dict[str, float], base_rate: float, seeds: Sequence[int]) -> Pairs:
    """The runs of each arm at its rate with GRPO's of the same seed, of the arms that have any."""
    pairs = {arm: cells.pairs(arm, rate, base_rate, seeds) for arm, rate in rates.items()}
    return {arm: own for arm, own in pairs.items() if own}


def sweep_table(cells: Cells) -> Table:
    """Mean reward over the steps by arm and rate, of the seeds that choose the rates."""
    study = cells.study
    first = study.sweep_seeds[0]
    rates = [rate for rate in study.rates if any(cells.of(study.cell(arm, rate, first)) for arm in study.arms)]
    title = f"Sweep: mean reward over all steps, seeds {study.sweep_seeds}"
    table = Table("arm", *(f"{rate:g}" for rate in rates), title=title, box=SIMPLE_HEAD)
    for arm in study.arms:
        own = [[cells.of(study.cell(arm, rate, seed)) for seed in study.sweep_seeds] for rate in rates]
        if any(row for rows in own for row in rows):
            table.add_row(arm, *(", ".join(f"{_mean(row['reward']):.3f}" for row in rows if row) for rows in own))
    return table


def over_grpo(pairs: Pairs) -> Table:
    """What each arm earns over the run and on held-out prompts, and its lead over GRPO, paired by seed."""
    parts = [part for part in OF_ALL[:2] if part in pairs[BASELINE][0][0]["held_out"]]
    headings = (text for part in parts for text in (f"held out, {part}", "lead"))
    caption = "percent and points: interquartile means, 95% bootstrap intervals over seeds; held out: means"
    table = Table(
        "arm", "rate", "over the run", "lead", *headings, title="Over GRPO", caption=caption, box=SIMPLE_HEAD
    )
    for arm, own in pairs.items():
        rewards, leads = over_the_run(own)
        cells = [f"{iqm(rewards):.1f}", measured(leads, "+.1f")]
        for part in parts:
            rates, base = ([100 * row["held_out"][part] for row in rows] for rows in zip(*own, strict=True))
            cells += [f"{_mean(rates):.0f}", measured(np.subtract(rates, base), "+.1f")]
        shown = [cell if arm != BASELINE or not place % 2 else "" for place, cell in enumerate(cells)]
        table.add_row(arm, f"{own[0][0]['learning_rate']:g}", *shown)
    return table


def over_the_run(pairs: Sequence[tuple[dict, dict]]) -> tuple[list[float], list[float]]:
    """Mean reward of an arm's runs over all steps, and how much more than GRPO's it is, in percent."""
    own, base = ([100 * _mean(row["reward"]) for row in rows] for rows in zip(*pairs, strict=True))
    return own, np.subtract(own, base).tolist()


def by_phase(pairs: Pairs) -> Table:
    """Mean reward in the first steps and in the last, and the share of completions with all criteria right there."""
    phases = {f"first {FIRST} steps": slice(FIRST), f"last {LAST} steps": slice(-LAST, None)}
    headings = (name for phase in phases for name in (phase, "lead", "all right", "lead"))
    table = Table("arm", *headings, title="Over GRPO, by phase", caption="as above; in points", box=SIMPLE_HEAD)
    for arm, own in pairs.items():
        row = [arm]
        for phase in phases.values():
            for name in ("reward", "all"):
                ours, base = ([100 * _mean(run[name][phase]) for run in runs] for runs in zip(*own, strict=True))
                gains = [value - other for value, other in zip(ours, base, strict=True)]
                row += [f"{iqm(ours):.1f}", "" if arm == BASELINE else measured(gains, "+.1f")]
        table.add_row(*row)
    return table


def rewards_of_criteria(row: dict) -> dict[str, float]:
    """Mean reward of a run by criterion. A step may have no prompt of one, such as an argument that one tool has."""
    return {name: _mean([value for value in own if value is not None]) for name, own in row["fields"].items()}


def _short(part: str) -> str:
    """The name of a criterion without the path to it: `room` of `calls[0].arguments.room`."""
    return part.rpartition(".")[2]


def by_criterion(pairs: Pairs) -> Table:
    """The lead in each criterion over the run, and on how many of them its interval excludes 0."""
    parts, caption = [*rewards_of_criteria(pairs[BASELINE][0][0])], "as above; in points"
    headings = "arm", *map(_short, parts), "ahead", "behind"
    table = Table(*headings, title="Lead over GRPO by criterion", caption=caption, box=SIMPLE_HEAD)
    for arm in (arm for arm in pairs if arm != BASELINE):
        both = [(rewards_of_criteria(own), rewards_of_criteria(base)) for own, base in pairs[arm]]
        gains = [[100 * (own[part] - base[part]) for own, base in both] for part in parts]
        low, high = np.array([interval(np.array(own)) for own in gains]).T
        shown = (measured(own, "+.1f") for own in gains)
        table.add_row(arm, *shown, str((low > 0).sum()), str((high < 0).sum()))
    return table


def alone(cells: Cells) -> dict[str, list[dict]]:
    """What has been measured of fine-tuning alone."""
    study = cells.study
    rows = {arm: cells.of(study.cell(arm, 0.0, study.seeds[0])) for arm in study.fine_tuning}
    return {arm: [row] for arm, row in rows.items() if row}


def held_out(pairs: Pairs, fine_tuned: dict[str, list[dict]]) -> Table:
    """Held-out pass rates by kind or criterion."""
    rows = fine_tuned | {arm: [row for row, _ in own] for arm, own in pairs.items()}
    parts, title = _held_out_parts(rows), "Held-out pass rates in percent, means over seeds"
    table = Table("arm", *map(_short, parts), title=title, box=SIMPLE_HEAD)
    for arm, own in rows.items():
        table.add_row(arm, *(f"{100 * _mean([row['held_out'][part] for row in own]):.0f}" for part in parts))
    return table


def _held_out_parts(rows: dict[str, list[dict]]) -> list[str]:
    """Kinds or criteria that all runs have, in order, those of all prompts last."""
    found = [own["held_out"] for runs in rows.values() for own in runs]
    known = [part for part in (found[0] if found else {}) if all(part in own for own in found)]
    return sorted(known, key=lambda part: OF_ALL.index(part) if part in OF_ALL else -1)


def signs(pairs: Pairs) -> Table:
    """What the runs are like beside their rewards: means over seeds and over all steps."""
    shown = {**SIGNS, "entropy": f"entropy, steps 1 to {FIRST}"}
    headings = "arm", *shown.values(), f"entropy, last {LAST}"
    table = Table(*headings, title="Means over all steps and seeds", box=SIMPLE_HEAD)
    for arm, own in pairs.items():
        rows = [row for row, _ in own]
        spans = {name: slice(FIRST) if name == "entropy" else slice(None) for name in shown}
        numbers = [_over_runs(rows, name, span) for name, span in spans.items()]
        table.add_row(arm, *numbers, _over_runs(rows, "entropy", slice(-LAST, None)))
    return table


def _over_runs(rows: Sequence[dict], name: str, steps: slice) -> str:
    """Mean of a series over runs and some of their steps, where it has a number."""
    values = [value for row in rows for value in row.get(name, [])[steps] if value is not None]
    return f"{_mean(values):.3g}" if values else ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
