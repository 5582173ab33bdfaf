"""Credit by criterion: the criteria of a group's completions, and sums over the recorded groups of a run."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tempo_trl.report.group import Group
from tempo_trl.runs.criteria import Span

Places = list[tuple[int, int]]


@dataclass
class CriterionSums:
    """Sums of a criterion over `judged` completions and `groups`, of which `flat` have equal rewards only."""

    judged: int = 0
    reward: float = 0.0
    credit: float = 0.0  # of |advantage|; NaN if the credit function gave none
    groups: int = 0
    flat: int = 0

    def add(self, spans: Sequence[Span]) -> None:
        """Count the criterion in the completions of a group that it judged, each once."""
        rewards = [span.reward for span in spans]
        self.judged += len(spans)
        self.reward += sum(rewards)
        self.credit += sum(np.nan if span.advantage is None else abs(span.advantage) for span in spans)
        self.groups += 1
        self.flat += min(rewards) >= max(rewards)


def add_criteria(sums: dict[str, CriterionSums], groups: Iterable[Group]) -> None:
    """Add the criteria of groups to sums by name."""
    for group in groups:
        found: dict[str, list[Span]] = defaultdict(list)
        for spans in group.spans:
            for name, (span, _) in with_places(spans).items():
                found[name].append(span)
        for name, spans in found.items():
            sums.setdefault(name, CriterionSums()).add(spans)


def with_places(spans: Sequence[Span]) -> dict[str, tuple[Span, Places]]:
    """Each criterion of a completion once, with all of its places in tokens."""
    found: dict[str, tuple[Span, Places]] = {}
    for span in spans:
        _, places = found.setdefault(span.name, (span, []))
        if span.start is not None:
            places.append((span.start, span.end))
    return found


def criteria_of(group: Group) -> list[str]:
    """Names of the criteria that judged a completion of the group, in the order of the record."""
    return list(dict.fromkeys(span.name for spans in group.spans for span in spans))
