"""Shuffle whole groups instead of rows, so that the completions of a prompt stay in one micro-batch."""

import numpy as np
import torch
from trl.trainer.utils import shuffle_sequence_dict


def shuffled_groups(batch: dict, begin: int, num_generations: int) -> dict:
    """
    A scored generation batch with its groups in random order, each of them whole.

    Groups are ordered by their first row in TRL's shuffle. That order is uniform and needs no further random number,
    so all other random streams of a run stay the same.

    Args:
        batch (`dict`):
            Tensors and lists with a value per row, and values of the whole batch.
        begin (`int`):
            Index of its first row in the generation batch of all ranks.
        num_generations (`int`):
            Rows in a group.
    """
    rows = torch.arange(len(batch["completion_ids"]))
    shuffled = shuffle_sequence_dict({"row": rows})["row"].numpy()
    _, first, group = np.unique((begin + shuffled) // num_generations, return_index=True, return_inverse=True)
    order = torch.from_numpy(shuffled[np.lexsort((shuffled, first[group]))])
    return {key: _taken(value, order) for key, value in batch.items()}


def _taken(value, order: torch.Tensor):
    if isinstance(value, torch.Tensor):
        return value[order.to(value.device)] if value.ndim else value
    return [value[i] for i in order.tolist()] if isinstance(value, list) else value
