"""Groups shuffled whole, so that the completions of a prompt stay in one micro-batch."""

import math
import warnings
from itertools import chain

import numpy as np
import torch
from trl.trainer.utils import split_tensor_dict

ROW = "generation_row"  # key of a scored batch: place of each row in the generation batch of all ranks, `(B,)`


def keep_groups_together(micro_batches: list[dict], num_generations: int) -> list[dict]:
    """
    Micro-batches of the same rows with whole groups shuffled, from TRL's, whose rows were shuffled one by one.

    The groups come in the order in which TRL's shuffle first meets one of their rows. That order is uniform, draws no
    further random number, and so leaves every other random stream of a run as it was.

    Args:
        micro_batches (`list[dict]`):
            TRL's, of equally many rows, with the key `ROW`.
        num_generations (`int`):
            Rows in a group.
    """
    merged = {key: _merged([batch[key] for batch in micro_batches]) for key in micro_batches[0]}
    row = merged[ROW].cpu().numpy()
    _, first, group = np.unique(row // num_generations, return_index=True, return_inverse=True)
    order = torch.from_numpy(np.lexsort((row, first[group])))
    return split_tensor_dict({key: _taken(value, order) for key, value in merged.items()}, len(micro_batches))


def _merged(values: list):
    """What the micro-batches have under one key, as one: rows, or what is the same for all of them."""
    if isinstance(values[0], torch.Tensor):
        return torch.cat(values) if values[0].ndim else values[0]
    return list(chain(*values)) if isinstance(values[0], list) else values[0]


def _taken(value, order: torch.Tensor):
    if isinstance(value, torch.Tensor):
        return value[order.to(value.device)] if value.ndim else value
    return [value[i] for i in order.tolist()] if isinstance(value, list) else value


def warn_of_groups_cut_by_micro_batches(micro_batch: int, num_generations: int) -> None:
    """Warn where micro-batches cannot hold whole groups, with what that costs."""
    if micro_batch % num_generations:
        parts, left = math.ceil(num_generations / micro_batch), micro_batch % num_generations
        cut = f"a prompt is computed {parts} times instead of once"
        if parts == 1:
            cut = f"{left} of the {num_generations} completions of a group are in one micro-batch, others in the next"
        warnings.warn(
            f"per_device_train_batch_size={micro_batch} rows do not hold whole groups of num_generations="
            f"{num_generations}: {cut}. Make it a multiple of {num_generations} (and gradient_accumulation_steps "
            "smaller by as much) for tree_forward to share all that it can.",
            UserWarning,
            stacklevel=4,
        )
