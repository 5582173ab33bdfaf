"""A reward with its place in a completion: what a span reward function returns."""

from typing import NamedTuple


class SpanReward(NamedTuple):
    """
    The reward of one criterion of a completion, and where it was decided.

    Args:
        name (`str`): The criterion. Completions of a group are compared criterion by criterion.
        reward (`float`, *optional*): Its reward; None if it was not judged.
        start, end (`int`, *optional*): The place: characters `start` to `end`, the last one excluded, of the
            completion's text with its special tokens (`texts`). None for both if the criterion has no place.
    """

    name: str
    reward: float | None
    start: int | None = None
    end: int | None = None
