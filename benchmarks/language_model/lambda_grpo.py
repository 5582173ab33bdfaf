"""lambda-GRPO (https://huggingface.co/papers/2509.21154) as a credit function."""

import torch

from tempo_trl import Batch


def lambda_grpo(batch: Batch) -> torch.Tensor:
    """
    GRPO's advantage over the number of completions that share a token's node of the prefix tree, `(R, T)`.

    GRPO counts a token that several completions of a group share once for each of them. So divided, it counts once.
    """
    groups = batch.completion_ids.view(-1, batch.num_generations, batch.completion_ids.shape[1])
    same = (groups[:, :, None] == groups[:, None]).cumprod(dim=-1)  # (groups, G, G, T): equal so far
    inside = (torch.arange(groups.shape[-1]) < batch.lengths[:, None]).view(groups.shape)
    sharing = (same * inside[:, None]).sum(dim=2).clamp(min=1).view(batch.completion_ids.shape)
    return batch.advantages.nan_to_num(0.0)[:, None] / sharing
