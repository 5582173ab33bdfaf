"""The tensors that credit functions take: what they must be, and the prefix trees that they make."""

import numpy as np
import torch

from tempo_trl.credit.prefix_tree import PrefixTree, build_prefix_tree


def prefix_tree(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    num_generations: int,
    prompts: torch.Tensor | None = None,
) -> PrefixTree:
    """The prefix trees of a batch of tensors, checked: arguments and errors as in [`prefix_values`]."""
    check_ids(completion_ids, num_generations)
    check_lengths(completion_lengths, *completion_ids.shape)
    if prompts is not None and (prompts.shape != completion_ids.shape[:1] or prompts.is_floating_point()):
        raise ValueError(
            f"`prompts` must be ({len(completion_ids)},) integers, one for each completion, got shape "
            f"{tuple(prompts.shape)} and dtype {prompts.dtype}."
        )
    return build_prefix_tree(
        completion_ids.detach().cpu().numpy(),
        completion_lengths.detach().cpu().numpy().astype(np.int64),
        num_generations,
        None if prompts is None else prompts.detach().cpu().numpy(),
    )


def check_ids(completion_ids: torch.Tensor, num_generations: int) -> None:
    """Raise ValueError unless these are token ids of whole groups, `(B, T)`."""
    if completion_ids.ndim != 2:
        raise ValueError(f"`completion_ids` must be (B, T), got shape {tuple(completion_ids.shape)}.")
    if completion_ids.is_floating_point() or completion_ids.is_complex() or completion_ids.dtype == torch.bool:
        raise ValueError(f"`completion_ids` must hold integer token ids, got dtype {completion_ids.dtype}.")
    if num_generations < 1 or len(completion_ids) % num_generations:
        raise ValueError(
            f"`completion_ids` must hold whole groups of `num_generations` adjacent rows, got {len(completion_ids)} "
            f"rows and num_generations = {num_generations}."
        )


def check_lengths(completion_lengths: torch.Tensor, rows: int, width: int) -> None:
    """Raise ValueError unless these are lengths of `rows` completions of at most `width` tokens."""
    if completion_lengths.shape != (rows,) or completion_lengths.is_floating_point():
        raise ValueError(
            f"`completion_lengths` must be ({rows},) integers, one for each row, got shape "
            f"{tuple(completion_lengths.shape)} and dtype {completion_lengths.dtype}."
        )
    if rows and not (completion_lengths.min() >= 0 and completion_lengths.max() <= width):
        raise ValueError(
            f"`completion_lengths` must lie between 0 and T = {width}, got {completion_lengths.min().item()} to "
            f"{completion_lengths.max().item()}."
        )


def check_rewards(rewards: torch.Tensor, rows: int) -> None:
    """Raise ValueError unless there is a reward for each of `rows` completions, finite or NaN."""
    if rewards.shape != (rows,):
        raise ValueError(f"`rewards` must be ({rows},), one for each completion, got shape {tuple(rewards.shape)}.")
    if rewards.isinf().any():
        raise ValueError("`rewards` must be finite, or NaN where a completion cannot be scored; got an infinite one.")
