"""Refuse a change of a user's subclass that silently takes advantages per token for advantages per completion."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from trl import GRPOTrainer


def without_factors_of_columns(trainer: GRPOTrainer) -> Callable:
    """
    `_generate_and_score_completions` of a trainer of a user's class, whose changes of the advantages are looked at.

    Where there are as many completions as columns (B = T), a number per completion also fits the tokens. The method
    raises ValueError if each column was changed by a number of its own, and columns differ.
    """
    score, use = trainer._generate_and_score_completions, trainer._use

    def checked(inputs):
        assigned = []

        def noted(output, *args):
            use(output, *args)
            assigned.append(output["advantages"].clone())

        with patch.object(trainer, "_use", noted):
            output = score(inputs)
        for advantages in assigned:
            _refuse_factors_of_columns(output["advantages"], advantages, type(trainer).__name__)
        return output

    return checked


def _refuse_factors_of_columns(advantages: torch.Tensor, assigned: torch.Tensor, name: str) -> None:
    rows, columns = assigned.shape[0], assigned.shape[-1]
    if assigned.ndim == 1 or rows != columns or advantages.shape != assigned.shape:
        return
    for change in (torch.where(assigned == 0, torch.nan, advantages / assigned), advantages - assigned):
        of_column = change.nanmean(dim=0)
        if _are_equal(change, of_column) and not _are_equal(of_column, of_column.nanmean()):
            raise ValueError(
                f"{name} changed `advantages` by a number per column, expected one per row: advantages are (B, T) = "
                f"{tuple(advantages.shape)} here, one per token, and a tensor of shape ({rows},) is read as one "
                "number per token. Multiply by `weights[:, None]`."
            )


def _are_equal(values: torch.Tensor, mean: torch.Tensor) -> bool:
    """Whether values, NaN aside, are their mean but for rounding."""
    return bool((((values - mean).abs() <= 1e-5 * mean.abs() + 1e-7) | values.isnan()).all())
