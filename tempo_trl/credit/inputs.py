"""Checks of the tensors that credit functions take, and the prefix trees that are built from them."""

import numpy as np
import torch

from tempo_trl.credit.prefix_tree import PrefixTree, build_prefix_tree


def prefix_tree(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    num_generations: int,
    prompts: torch.Tensor | None = None,
) -> PrefixTree:
    """Check the tensors of a batch and build its prefix trees. Arguments and errors as in [`prefix_values`]."""
    check_ids(completion_ids, num_generations)
    check_lengths(completion_lengths, *completion_ids.shape)
    if prompts is not None and (prompts.shape != completion_ids.shape[:1] or prompts.is_floating_point()):
        raise ValueError(
            f"`prompts` must be ({len(completion_ids)},) integers, one per completion, got shape "
            f"{tuple(prompts.shape)} and dtype {prompts.dtype}."
        )
    return build_prefix_tree(
        completion_ids.detach().cpu().numpy(),
        completion_lengths.detach().cpu().numpy().astype(np.int64),
        num_generations,
        None if prompts is None else prompts.detach().cpu().numpy(),
    )


def check_ids(completion_ids: torch.Tensor, num_generations: int) -> None:
    """Raise ValueError unless `completion_ids` are token ids of whole groups, `(B, T)`."""
    if completion_ids.ndim != 2:
        raise ValueError(f"`completion_ids` must be (B, T), got shape {tuple(completion_ids.shape)}.")
    if completion_ids.is_floating_point() or completion_ids.is_complex() or completion_ids.dtype == torch.bool:
        raise ValueError(f"`completion_ids` must be integer token ids, got dtype {completion_ids.dtype}.")
    if num_generations < 1 or len(completion_ids) % num_generations:
        raise ValueError(
            f"`completion_ids` must have whole groups of `num_generations` adjacent rows: {len(completion_ids)} rows "
            f"is not a multiple of num_generations = {num_generations}."
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
