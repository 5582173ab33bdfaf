"""Criteria of recorded completions: the entries of the column `spans`, and a line of text for tables."""

import math
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
    rewards = criteria.rewards.tolist()
    places = torch.stack([criteria.starts, criteria.ends], dim=-1).tolist()  # (R, K, P, 2)
    credit = [[None] * len(criteria.names)] * len(rewards) if advantages is None else advantages.tolist()
    return [
        [
            Span(name, reward, advantage, *place)
            for name, reward, advantage, own in zip(criteria.names, *row, strict=True)
            if not math.isnan(reward)
            for place in [place for place in own if place[0] >= 0] or [(None, None)]
        ]
        for row in zip(rewards, credit, places, strict=True)
    ]


def criteria_text(spans: Sequence[Span]) -> str:
    """The criteria of a completion with reward and advantage, each once: `city 1 +0.87, item 0 -1.20`."""
    credit = {span.name: (span.reward, span.advantage) for span in spans}
    return ", ".join(
        f"{name} {reward:.3g}" + ("" if advantage is None else f" {advantage:+.2f}")
        for name, (reward, advantage) in credit.items()
    )
