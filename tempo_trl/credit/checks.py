"""What the functions of this folder and the configurations of methods refuse: each check raises ValueError."""

import math
from collections.abc import Sequence
from numbers import Integral

import torch


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of the `known`."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {known}, got {value!r}.")


def check_number(name: str, number: float, most: float = math.inf) -> None:
    """Raise ValueError unless a number is finite, at least 0 and at most `most`."""
    if not 0.0 <= number <= most or number == math.inf:
        expected = "a finite number of at least 0" if most == math.inf else f"between 0 and {most}"
        raise ValueError(f"`{name}` must be {expected}, got {number!r}.")


def check_counts(settings: object, **least: int) -> None:
    """Raise ValueError unless these settings are whole numbers of at least so much."""
    for name, number in least.items():
        value = getattr(settings, name)
        if not (isinstance(value, Integral) and value >= number):
            raise ValueError(f"`{name}` must be a whole number of at least {number}, got {value!r}.")


def refuse(config: object, refused: dict[str, tuple[bool, str]]) -> None:
    """Raise ValueError for the first field that is wrong, of `{name: (whether it is wrong, why and what to do)}`."""
    for name, (wrong, why) in refused.items():
        if wrong:
            raise ValueError(f"`{name}` is {getattr(config, name)!r}: {why}.")


def check_ids(completion_ids: torch.Tensor, num_generations: int) -> None:
    """Raise ValueError unless `completion_ids` are token ids of whole groups, `(B, T)`."""
    if completion_ids.ndim != 2:
        raise ValueError(f"`completion_ids` must be (B, T), got shape {tuple(completion_ids.shape)}.")
    if completion_ids.is_floating_point() or completion_ids.is_complex() or completion_ids.dtype == torch.bool:
        raise ValueError(f"`completion_ids` must be integer token ids, got dtype {completion_ids.dtype}.")
    check_groups("completion_ids", len(completion_ids), num_generations)


def check_groups(name: str, rows: int, num_generations: int) -> None:
    """Raise ValueError unless the rows of an argument `name` are whole groups."""
    if num_generations < 1 or rows % num_generations:
        raise ValueError(
            f"`{name}` must have whole groups of `num_generations` adjacent rows: {rows} rows is not a multiple of "
            f"num_generations = {num_generations}."
        )


def check_lengths(completion_lengths: torch.Tensor, rows: int, width: int, name: str = "completion_lengths") -> None:
    """Raise ValueError unless an argument `name` has `rows` lengths of at most `width` tokens."""
    if completion_lengths.shape != (rows,) or completion_lengths.is_floating_point():
        raise ValueError(
            f"`{name}` must be ({rows},) integers, one per row, got shape "
            f"{tuple(completion_lengths.shape)} and dtype {completion_lengths.dtype}."
        )
    if rows and not (completion_lengths.min() >= 0 and completion_lengths.max() <= width):
        raise ValueError(
            f"`{name}` must be between 0 and T = {width}, got {completion_lengths.min().item()} to "
            f"{completion_lengths.max().item()}."
        )


def check_rewards(rewards: torch.Tensor, rows: int) -> None:
    """Raise ValueError unless there is a reward for each of `rows` completions, finite or NaN."""
    if rewards.shape != (rows,):
        raise ValueError(f"`rewards` must be ({rows},), one per completion, got shape {tuple(rewards.shape)}.")
    if rewards.isinf().any():
        raise ValueError("`rewards` must be finite, or NaN for completions without a score, got infinity.")
