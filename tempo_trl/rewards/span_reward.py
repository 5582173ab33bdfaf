"""A reward with its place in a completion: what a span reward function returns, and when that is valid."""

import math
import reprlib
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

Places = list[tuple[int, int]]  # of a criterion in a completion: the first token, and the one after the last

LARGEST_REWARD = 1e18  # squares of larger ones, of which a standard deviation is made, leave float32


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


def checked_spans(given: Any, texts: Sequence[str], name: str) -> list[list[SpanReward]]:
    """
    Validate what a span reward function returned.

    Args:
        given: The return value.
        texts (`list[str]`): The completions' texts.
        name (`str`): The function, for messages.

    Raises:
        ValueError: with the row and the criterion, what was got and what is expected.
    """
    check_lists(given, len(texts), name, SpanReward)
    for row, (spans, text) in enumerate(zip(given, texts, strict=True)):
        check_spans(spans, len(text), f"{name}, row {row}")
    return given


def check_lists(given: Any, count: int, name: str, kind: type) -> None:
    """Raise ValueError unless the function of a name returned `count` lists, of entries of a named tuple each."""
    if not isinstance(given, list | tuple) or len(given) != count:
        got = f"{len(given)} lists" if isinstance(given, list | tuple) else type(given).__name__
        raise ValueError(f"{name} must return {count} lists of {kind.__name__}, one per completion, got {got}.")
    for row, entries in enumerate(given):
        if not isinstance(entries, list | tuple) or isinstance(entries, kind):
            raise ValueError(f"{name}, row {row}: expected a list of {kind.__name__}, got {entries!r}.")


def check_spans(
    spans: Sequence[SpanReward], length: int, where: str, unit: str = "the length of the completion's text (`texts`)"
) -> None:
    """
    Validate the criteria of one completion.

    Args:
        spans (`list[SpanReward]`): Its criteria.
        length (`int`): Number of characters or tokens that a place may count.
        where (`str`): The completion, for messages.
        unit (`str`, *optional*): What `length` is, for messages.

    Raises:
        ValueError: with the criterion, what was got and what is expected.
    """
    for span in spans:
        fault = _fault(span, length, unit)
        if fault:
            raise ValueError(f"{where}: {fault}")
    _refuse_contradictions(spans, where)


def _fault(span: Any, length: int, unit: str) -> str | None:
    """What is wrong with a [`SpanReward`] of a completion of `length` characters or tokens."""
    if not isinstance(span, SpanReward):
        return f"expected a SpanReward(name, reward, start, end), got {type(span).__name__}: {span!r}."
    name, reward, start, end = span
    if not isinstance(name, str) or not name:
        return f"the name of a criterion must be a text, got {name!r}."
    if reward is not None and not (isinstance(reward, Real | np.bool_) and abs(reward) <= LARGEST_REWARD):
        return (
            f"the reward of {name!r} must be a finite number, or None if it was not judged, and at most "
            f"{LARGEST_REWARD:g} in size, got {reward!r}."
        )
    if (start is None) != (end is None):
        return f"{name!r} must have a start and an end, or neither, got start {start!r} and end {end!r}."
    if start is None:
        return None
    are_integers = all(isinstance(each, Integral) and not isinstance(each, bool) for each in (start, end))
    if not are_integers or not 0 <= start < end <= length:
        return (
            f"the place of {name!r} must have 0 <= start < end <= {length}, {unit}, and whole numbers, got start "
            f"{start!r} and end {end!r}. Use None for both if the criterion has no place."
        )
    return None


def _refuse_contradictions(spans: Sequence[SpanReward], where: str) -> None:
    """Raise ValueError for two entries of one criterion that are not two places of it."""
    first: dict[str, SpanReward] = {}
    seen = set()
    for span in spans:
        known = first.setdefault(span.name, span)
        if known.reward != span.reward or (known.start is None) != (span.start is None):
            raise ValueError(
                f"{where}: {known} and {span} have one name. Two places of one criterion must have the same reward, "
                "and each a start and an end. Give different criteria different names."
            )
        if (span.name, span.start, span.end) in seen:
            raise ValueError(f"{where}: {span.name!r} stands twice with the same place ({span.start}, {span.end}).")
        seen.add((span.name, span.start, span.end))


def refuse_columns_as_options(function: str, **options: Any) -> None:
    """
    Raise ValueError for an option of a reward function that is a list: TRL passes every dataset column by its name,
    also over an option that was set with [`functools.partial`].
    """
    for name, value in options.items():
        if isinstance(value, list):
            raise ValueError(
                f"the option `{name}` of {function} is a list of {len(value)}, which is what TRL passes for a dataset "
                f"column named {name!r}. Rename the column, for example with dataset.rename_column({name!r}, "
                f"'my_{name}')."
            )


def referenced(
    columns: dict[str, list], column: str, function: str, read: Callable[[Any], Any], expected: str
) -> list[Any]:
    """
    What a span reward function compares with: what `read` makes of each cell of a dataset column, None of None.

    Args:
        columns (`dict[str, list]`): The dataset's columns.
        column (`str`): The name of the column.
        function (`str`): The function, for messages.
        read (`Callable`): Raises ValueError, TypeError or RecursionError for a cell that is malformed.
        expected (`str`): What a cell should be, for messages.

    Raises:
        ValueError: if there is no such column, or a cell is malformed, with its row and what is expected.
    """
    if column not in columns:
        raise ValueError(
            f"{function} got no column {column!r}, only {', '.join(columns) or 'none'}. Set `column` to the dataset "
            f"column that has {expected}."
        )
    found = []
    for row, value in enumerate(columns[column]):
        try:
            found.append(None if value is None else read(value))
        except (ValueError, TypeError, RecursionError) as error:
            got = f"row {row} of this call's column {column!r} is {reprlib.repr(value)}"
            raise ValueError(f"{got}, expected {expected}: {error}. Correct it.") from error
    return found


def by_criterion(
    spans: Sequence[SpanReward], tokens: Callable[[int, int], tuple[int, int]]
) -> dict[str, tuple[float, Places]]:
    """The reward of each criterion of a completion, NaN if it was not judged, and the tokens of its places."""
    found = {}
    for span in spans:
        _, places = found.setdefault(span.name, (math.nan if span.reward is None else float(span.reward), []))
        if span.start is not None:
            places.append(tokens(span.start, span.end))
    return found
