"""First tokens of branches that had to differ from a sibling's, and so were not drawn from the policy."""

import torch

FORCED_TOKENS = ("keep", "reweight", "mask")


def treat_forced_tokens(
    advantages: torch.Tensor, forced_ratio: torch.Tensor, forced_tokens: str
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    Advantages with those of forced tokens reweighted, and the tokens that stay in the loss.

    Args:
        advantages (`torch.Tensor` of shape `(B, T)`):
            Advantages.
        forced_ratio (`torch.Tensor` of shape `(B, T)`):
            Importance ratio of the policy over how a token was drawn: 1 but for forced tokens.
        forced_tokens (`str`):
            `"keep"` changes nothing, `"reweight"` multiplies advantages with the ratio, `"mask"` takes forced tokens
            out of the loss.

    Returns:
        Advantages, and a mask `(B, T)`, bool, or None where every token stays.
    """
    if forced_tokens == "reweight":
        return advantages * forced_ratio, None
    return advantages, forced_ratio == 1 if forced_tokens == "mask" else None
