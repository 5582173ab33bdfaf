"""Collect the data of a report: a summary of all recorded groups of a run, and some of the groups to show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from tempo_trl.report.credit_summary import CreditSummary
from tempo_trl.report.embed import embedded_size
from tempo_trl.report.group import CreditTerms, Group, recorded_groups
from tempo_trl.runs.run import Run
from tempo_trl.runs.trees import recorded_modes

MAX_RECORDS = 200  # records of a run to read, evenly spread
MAX_STEPS = 16  # steps of a run to choose from in the page
MAX_GROUPS = 64  # groups in a page
MAX_BYTES = 4_300_000  # size of the groups in a page, which keeps the page below 5 MB


@dataclass
class RecordedRun:
    """
    The data of a run for the report.

    Args:
        label, curve: The run's name, and the name under which its curve is averaged with others.
        log: Trainer's `log_history`.
        summary: Summary of the groups recorded in training; None if there are none.
        groups: Groups to show, by mode, in order.
        recorded: Number of groups that were read, by mode.
    """

    label: str
    curve: str
    log: list[dict] = field(repr=False)
    summary: CreditSummary | None = None
    groups: dict[str, list[Group]] = field(default_factory=dict, repr=False)
    recorded: dict[str, int] = field(default_factory=dict)

    @property
    def terms(self) -> CreditTerms | None:
        """The terms of its method's credit; None without recorded groups."""
        return next((group.terms for groups in self.groups.values() for group in groups), None)

    def read(self, mode: str, records: Iterable[list[Group]], shown: Sequence[int]) -> None:
        """Summarize the records of a mode (a list of groups each), and keep the groups of the steps in `shown`."""
        summary, kept, count = CreditSummary(), [], 0
        for groups in records:
            count += len(groups)
            summary.add(groups)
            kept += [group for group in groups if group.step in shown]
        if count:
            self.groups[mode], self.recorded[mode] = kept, count
            if mode == "train":
                self.summary = summary


def read_inside(run: Run, label: str, curve: str) -> RecordedRun:
    """Read the log and the recorded trees of a run."""
    inside = RecordedRun(label, curve, run.log)
    for mode, recorded in recorded_modes(run.folder).items():
        steps = spread(recorded, MAX_RECORDS)
        records = (recorded_groups(run.folder, step, mode) for step in steps)
        inside.read(mode, records, spread(steps, MAX_STEPS))
    return inside


def spread(items: Sequence, most: int) -> list:
    """At most `most` of the items, the first and the last among them, evenly spread."""
    return [items[i] for i in np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)]


def choose_groups(runs: Sequence[RecordedRun]) -> list[tuple[int, str, Group]]:
    """The groups of the page with run and mode: the first group of each step, then the second, up to the limits."""
    places = [
        (n, (i, mode, group))
        for i, run in enumerate(runs)
        for mode, own in run.groups.items()
        for _, of_step in groupby(own, key=lambda group: group.step)
        for n, group in enumerate(of_step)
    ]
    chosen, room = [], MAX_BYTES
    for _, place in sorted(places, key=lambda place: place[0]):
        size = embedded_size(place[2])
        if len(chosen) < MAX_GROUPS and (size <= room or not chosen):
            chosen.append(place)
            room -= size
    return sorted(chosen, key=lambda place: (place[0], place[1] != "train", place[2].step, place[2].group))


def opening_group(groups: Sequence[Group]) -> int:
    """Index of the group to show first: of the first step, with different rewards and many branches."""
    first = groups[0].step

    def rank(i: int) -> tuple:
        known, nodes = groups[i].rewards[~np.isnan(groups[i].rewards)], len(groups[i].nodes)
        return groups[i].step == first, (float(known.std()) if len(known) else 0.0) * nodes, nodes

    return max(range(len(groups)), key=rank)
