"""Whole groups on every rank: a group may start on one rank and end on the next."""

from typing import NamedTuple

import torch
from accelerate import Accelerator


class WholeGroups(NamedTuple):
    """
    The groups that have a row on this rank, whole.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`):
            Token ids, right-padded to the longest completion of all ranks.
        lengths (`torch.Tensor` of shape `(R,)`):
            True lengths in tokens.
        outcome (`torch.Tensor` of shape `(R,)`):
            Outcome advantages, NaN where a completion is unscorable.
        prompts (`torch.Tensor` of shape `(R,)`):
            Numbers of the prompts ([`~tempo_trl.trainers.prompts.prompt_keys`]).
        own (`slice`):
            The rows that are this rank's.
        owned (`slice`):
            The groups that begin on this rank: each group of the batch is owned once.
    """

    completion_ids: torch.Tensor
    lengths: torch.Tensor
    outcome: torch.Tensor
    prompts: torch.Tensor
    own: slice
    owned: slice


def gather_whole_groups(
    accelerator: Accelerator,
    completion_ids: torch.Tensor,
    lengths: torch.Tensor,
    outcome: torch.Tensor,
    prompts: torch.Tensor,
    num_generations: int,
) -> WholeGroups:
    """
    Fetch the rows of other ranks that share a group with this rank's rows.

    Ranks hold equally many rows (as TRL's own gathering demands), rank after rank in sampler order, so whether groups
    straddle ranks is known from the shapes alone: all ranks communicate, or none does, whatever the data.
    """
    rows = len(completion_ids)
    if rows % num_generations == 0:
        own, owned = slice(0, rows), slice(0, rows // num_generations)
        return WholeGroups(completion_ids, lengths, outcome, prompts, own, owned)

    padded = accelerator.pad_across_processes(completion_ids, dim=1)
    of_all_ranks = accelerator.gather((padded, lengths, outcome, prompts.to(lengths.device)))
    begin = accelerator.process_index * rows
    end = begin + rows
    first, last = begin // num_generations, -(-end // num_generations)
    near = slice(first * num_generations, last * num_generations)
    own = slice(begin - near.start, end - near.start)
    owned = slice(-(-begin // num_generations) - first, -(-end // num_generations) - first)
    return WholeGroups(*(rows[near] for rows in of_all_ranks), own, owned)
