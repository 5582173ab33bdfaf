"""Shuffle whole groups instead of rows, so that the completions of a prompt stay in one micro-batch."""

from itertools import chain

import numpy as np
import torch
from trl.trainer.utils import split_tensor_dict

ROW = "generation_row"  # key in a scored batch: index of each row in the generation batch of all ranks, `(B,)`


def keep_groups_together(micro_batches: list[dict], num_generations: int) -> list[dict]:
    """
    Regroup TRL's micro-batches, whose rows were shuffled one by one, so that whole groups are shuffled.

    Groups are ordered by their first row in TRL's shuffle. That order is uniform and needs no further random number,
    so all other random streams of a run stay the same.

    Args:
        micro_batches (`list[dict]`):
            TRL's micro-batches, with equally many rows and the key `ROW`.
        num_generations (`int`):
            Rows in a group.
    """
    merged = {key: _merged([batch[key] for batch in micro_batches]) for key in micro_batches[0]}
    row = merged[ROW].cpu().numpy()
    _, first, group = np.unique(row // num_generations, return_index=True, return_inverse=True)
    order = torch.from_numpy(np.lexsort((row, first[group])))
    return split_tensor_dict({key: _taken(value, order) for key, value in merged.items()}, len(micro_batches))


def _merged(values: list):
    """The values of all micro-batches under one key, concatenated, or the one value if it is not per row."""
    if isinstance(values[0], torch.Tensor):
        return torch.cat(values) if values[0].ndim else values[0]
    return list(chain(*values)) if isinstance(values[0], list) else values[0]


def _taken(value, order: torch.Tensor):
    if isinstance(value, torch.Tensor):
        return value[order.to(value.device)] if value.ndim else value
    return [value[i] for i in order.tolist()] if isinstance(value, list) else value
