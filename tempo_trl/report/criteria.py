"""Credit by criterion: the criteria of a group's completions, and over a run what each earned and moved."""

from collections.abc import Iterable, Sequence

import pandas as pd

from tempo_trl.report.group import Group
from tempo_trl.runs.criteria import Span

Places = list[tuple[int, int]]
COLUMNS = ["name", "step", "group", "reward", "credit"]


def with_places(spans: Sequence[Span]) -> dict[str, tuple[Span, Places]]:
    """Each criterion of a completion once, with all of its places in tokens."""
    found: dict[str, tuple[Span, Places]] = {}
    for span in spans:
        _, places = found.setdefault(span.name, (span, []))
        if span.start is not None:
            places.append((int(span.start), int(span.end)))  # pandas reads integers that may be null as floats
    return found


def criteria_of(group: Group) -> list[str]:
    """Names of the criteria that judged a completion of the group, in the order of the record."""
    return list(dict.fromkeys(span.name for spans in group.spans for span in spans))


def judged(groups: Iterable[Group]) -> pd.DataFrame:
    """A row for each criterion of each completion: its `name`, `reward` and `credit`, which is its advantage."""
    rows = [
        (name, group.step, group.group, span.reward, span.advantage)
        for group in groups
        for spans in group.spans
        for name, (span, _) in with_places(spans).items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"credit": float})


def statistics(rows: pd.DataFrame) -> pd.DataFrame:
    """By name: mean `reward`, mean |advantage| (`credit`), number of `groups`, share of `flat` ones."""
    by_name = rows.assign(credit=rows["credit"].abs()).groupby("name", sort=False)
    found = by_name[["reward", "credit"]].mean()
    rewards = rows.groupby(["name", "step", "group"], sort=False)["reward"]
    flat = (rewards.min() >= rewards.max()).groupby("name", sort=False).agg(["mean", "size"])
    return found.assign(flat=flat["mean"], groups=flat["size"])
