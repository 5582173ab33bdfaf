"""What a report is made of: statistics over all recorded groups of a run, and some of the groups to look at."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np

from tempo_trl.report.embed import embedded_size
from tempo_trl.report.folding import Group, groups_of
from tempo_trl.report.statistics import RunStatistics
from tempo_trl.runs.several import ComparedRun
from tempo_trl.runs.trees import read_trees, recorded_steps

MODES = {"train": "training", "eval": "evaluation"}
MAX_RECORDS = 200  # of a run are read, spread over it
MAX_STEPS = 16  # of a run can be chosen in the page
MAX_GROUPS = 64  # in a page
MAX_BYTES = 4_300_000  # of groups in a page, so that the whole stays under 5 MB


@dataclass
class RunInside:
    """
    A run as the report sees it.

    Args:
        label, method: What it is called, and the name under which its curve is averaged with others.
        log: Trainer's `log_history`.
        statistics: Over the recorded groups of training; None if it recorded none.
        groups: Groups to look at, by mode, in order.
        recorded: How many groups were read, by mode.
    """

    label: str
    method: str
    log: list[dict] = field(repr=False)
    statistics: RunStatistics | None = None
    groups: dict[str, list[Group]] = field(default_factory=dict, repr=False)
    recorded: dict[str, int] = field(default_factory=dict)

    def read(self, mode: str, records: Iterable[list[Group]], shown: Sequence[int]) -> None:
        """Count the records of a mode, a list of groups each, and keep the groups of the steps to be shown."""
        statistics, kept, count = RunStatistics(), [], 0
        for groups in records:
            count += len(groups)
            statistics.add(groups)
            kept += [group for group in groups if group.step in shown]
        if count:
            self.groups[mode], self.recorded[mode] = kept, count
            if mode == "train":
                self.statistics = statistics


def read_inside(run: ComparedRun, label: str) -> RunInside:
    """Read what a run left: its log and its trees."""
    inside = RunInside(label, run.method, run.log)
    for mode in MODES:
        steps = spread(recorded_steps(run.folder, mode), MAX_RECORDS)
        records = (groups_of(read_trees(run.folder, [step], mode)) for step in steps)
        inside.read(mode, records, spread(steps, MAX_STEPS))
    return inside


def spread(items: Sequence, most: int) -> list:
    """At most `most` of the items, the first and the last among them, evenly spread."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def choose_groups(runs: Sequence[RunInside]) -> list[tuple[int, str, Group]]:
    """The groups of the page with their run and mode: in turn the first of each step, the second, up to the limits."""
    queues = []
    for i, run in enumerate(runs):
        for mode, groups in run.groups.items():
            by_step: dict[int, list] = {}
            for group in groups:
                by_step.setdefault(group.step, []).append((i, mode, group))
            queues += by_step.values()
    chosen, room = [], MAX_BYTES
    for place in filter(None, chain.from_iterable(zip_longest(*queues))):
        size = embedded_size(place[2])
        if len(chosen) < MAX_GROUPS and (size <= room or not chosen):
            chosen.append(place)
            room -= size
    return sorted(chosen, key=lambda place: (place[0], place[1] != "train", place[2].step, place[2].group))


def telling(groups: Sequence[Group]) -> int:
    """Index of the group to open with: of the first step, with mixed rewards and many branches."""
    first = groups[0].step

    def tells(i: int) -> tuple:
        group = groups[i]
        spread_of_rewards = (
            float(np.nan_to_num(np.nanstd(group.rewards))) if not np.isnan(group.rewards).all() else 0.0
        )
        return group.step == first, spread_of_rewards * len(group.nodes()), len(group.nodes())

    return max(range(len(groups)), key=tells)
