"""Credit by criterion: the criteria of a group's completions, and over a run what each cost and gained, and where."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from tempo_trl.report.group import Group
from tempo_trl.runs.criteria import Span
from tempo_trl.runs.token_text import cut, one_line, readable

Places = list[tuple[int, int]]
COLUMNS = ["name", "step", "group", "reward", "credit", "begin", "end", "text"]
SHOWN = 40  # characters of a name or of a place


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
    """
    A row for each criterion of each completion: its `name`, `reward` and `credit`, which is its advantage, and of its
    places the first token, the one after the last, and the `text` of the first; NaN and empty without a place.
    """
    rows = [
        (name, group.step, group.group, span.reward, span.advantage, *_where(places, tokens))
        for group in groups
        for spans, tokens in zip(group.spans, group.tokens, strict=False)
        for name, (span, places) in with_places(spans).items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"credit": float})


def _where(places: Places, tokens: Sequence[str]) -> tuple[float, float, str]:
    if not places:
        return np.nan, np.nan, ""
    return min(places)[0], max(end for _, end in places), "".join(readable(tokens)[slice(*places[0])])


def statistics(rows: pd.DataFrame) -> pd.DataFrame:
    """By name: mean `reward`, mean and sum of |advantage|, mean place, number of `groups`, share of `flat` ones."""
    by_name = rows.assign(credit=rows["credit"].abs()).groupby("name", sort=False)
    found = by_name[["reward", "credit", "begin", "end"]].mean()
    rewards = rows.groupby(["name", "step", "group"], sort=False)["reward"]
    flat = (rewards.min() >= rewards.max()).groupby("name", sort=False).agg(["mean", "size"])
    return found.assign(mass=by_name["credit"].sum(), flat=flat["mean"], groups=flat["size"])


def lesson(rows: pd.DataFrame) -> str:
    """Whose mean reward rose and fell most, if any was judged at both ends, and where most of the credit lies."""
    if rows["credit"].isna().all():
        return ""
    return f"{_change(rows)} {_most_credit(rows)}".lstrip()


def _change(rows: pd.DataFrame) -> str:
    rewards = rows.pivot_table("reward", "name", "step")  # the means of each step
    first, last = rewards.columns[[0, -1]]
    if first == last:
        own = rewards[last]
        low, high = (f"{_quoted(name)} ({own[name]:.2f})" for name in (own.idxmin(), own.idxmax()))
        return f"The mean reward is highest for {high} and lowest for {low}."
    change, moved = (rewards[last] - rewards[first]).dropna(), []
    if change.empty:
        return ""
    for verb, own in (("rose", change), ("fell", -change)):
        if (own > 0).any():
            before, after = rewards.loc[own.idxmax(), [first, last]]
            moved.append(f"{verb} most for {_quoted(own.idxmax())} ({before:.2f} to {after:.2f})")
    return f"From step {first} to step {last} the mean reward {' and '.join(moved) or 'of no criterion changed'}."


def _most_credit(rows: pd.DataFrame) -> str:
    found = statistics(rows)
    name, total = found["mass"].idxmax(), found["mass"].sum()
    if not total:
        return "No criterion has credit: in each group its rewards are equal."
    own, share = found.loc[name], found["mass"][name] / total
    largest = rows.loc[rows["credit"].where(rows["name"] == name).abs().idxmax()]
    places = (
        "all tokens" if np.isnan(own["begin"]) else f"tokens {own['begin'] + 1:.0f} to {own['end']:.0f}, on average"
    )
    at = f" at {_quoted(largest['text'].strip())}" if largest["text"] else ""
    what = f"The largest share of the credit, {share:.0%}, is that of {_quoted(name)}"
    return f"{what}: on {places}, and at its largest {largest['credit']:+.2f}{at}."


def _quoted(text: str) -> str:
    return f"“{cut(one_line(text), SHOWN)}”"
