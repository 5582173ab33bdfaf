"""Adapters (PEFT) whose work on a token is not a function of the token and what is before it."""

from torch import nn

# LILY weighs its experts by a mean over all tokens of a batch, PVERA draws noise. Both begin without an effect, so
# that no comparison of a first batch shows it.
MIXING = ("LILY", "PVERA")
WHAT_THEY_DO = "depends on more than a token and those before it (virtual tokens, invoking tokens, other rows, noise)"


def mixes_rows(model: nn.Module) -> bool:
    """Whether what an adapter does to a row depends on the other rows of the batch, or on chance."""
    return any(each.peft_type in MIXING for each in getattr(model, "peft_config", {}).values())


def adapts_rows(model: nn.Module) -> bool:
    """
    Whether an adapter depends on a whole row of the batch, or on several: virtual tokens (prompt or prefix tuning),
    tokens that invoke it (activated LoRA), or [`mixes_rows`]. Rows cannot be cut into segments or packed then.
    """
    adapters = getattr(model, "peft_config", {}).values()
    virtual = any(each.is_prompt_learning or getattr(each, "alora_invocation_tokens", None) for each in adapters)
    return virtual or mixes_rows(model)
