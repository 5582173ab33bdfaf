"""What the weights before training would say of completions that were sampled after it."""

import torch
from transformers import AutoModelForCausalLM


def apart_from_first_weights(model: str, output: dict[str, torch.Tensor]) -> torch.Tensor:
    """Distances, `(B, T)`, of the model's log-probabilities of a batch from those that it was sampled with."""
    first = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = first(ids, attention_mask=mask).logits[:, -output["completion_ids"].shape[1] - 1 : -1]
    stale = logits.log_softmax(-1).gather(-1, output["completion_ids"].unsqueeze(-1)).squeeze(-1)
    return ((stale - output["sampling_per_token_logps"]) * output["completion_mask"]).abs()
