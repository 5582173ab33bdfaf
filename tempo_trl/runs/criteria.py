"""Criteria in what a run writes: their metrics, the entries of the column `spans`, and a line of text for tables."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tempo_trl.credit.spans import Criteria


class Span(NamedTuple):
    """
    A criterion of a completion with one of its places. A criterion with several places has several entries.

    Args:
        name: The criterion.
        reward: Its reward.
        advantage: Its weighted advantage, in units of the advantages; None if the credit function gave none.
        start, end: Its place in tokens, the last one excluded; None for both without a place.
    """

    name: str
    reward: float
    advantage: float | None = None
    start: int | None = None
    end: int | None = None


def spans_of(criteria: Criteria, advantages: torch.Tensor | None) -> list[list[Span]]:
    """
    The judged criteria of each of R completions.

    Args:
        criteria ([`~tempo_trl.credit.spans.Criteria`]): The criteria.
        advantages (`torch.Tensor` of shape `(R, K)`, *optional*): Weighted advantage of each.
    """
    found: list[list[Span]] = [[] for _ in criteria.rewards]
    judged = (~criteria.rewards.isnan()).nonzero(as_tuple=True)
    credit = [None] * len(judged[0]) if advantages is None else advantages[judged].tolist()
    places = torch.stack([criteria.starts[judged], criteria.ends[judged]], dim=-1).tolist()  # (n, P, 2)
    for row, k, reward, own, of_places in zip(
        *(each.tolist() for each in (*judged, criteria.rewards[judged])), credit, places, strict=True
    ):
        given = [place for place in of_places if place[0] >= 0] or [(None, None)]
        found[row] += [Span(criteria.names[k], reward, own, *place) for place in given]
    return found


def criteria_text(spans: Sequence[Span]) -> str:
    """The criteria of a completion with reward and advantage, each once: `city: 1 +0.87, item: 0 -1.20`."""
    credit = {span.name: (span.reward, span.advantage) for span in spans}
    return ", ".join(
        f"{name}: {reward:.3g}" + ("" if advantage is None else f" {advantage:+.2f}")
        for name, (reward, advantage) in credit.items()
    )


def logged_name(criterion: str) -> str:
    """
    The first part of a criterion's name, by which metrics are logged: `city` of `city.street`, `calls` of
    `calls[2].name`. There are as many as a reference has keys at its top, however many references there are.
    """
    first = re.split(r"[.\[]", criterion, maxsplit=1)[0]
    return f"{first}[]" if first == "" or first.endswith("/") else first  # elements of a list, after `FUNCTION/`
