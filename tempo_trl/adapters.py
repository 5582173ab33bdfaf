"""Adapters (PEFT) whose work on a token is not a function of the token and what is before it."""

from torch import nn


def adapts_rows(model: nn.Module) -> bool:
    """
    Whether an adapter depends on a whole row of the batch: virtual tokens (prompt or prefix tuning), or tokens that
    invoke it (activated LoRA). Rows cannot be cut into segments or packed then.
    """
    adapters = getattr(model, "peft_config", {}).values()
    return any(each.is_prompt_learning or getattr(each, "alora_invocation_tokens", None) for each in adapters)
