"""Forced tokens: first tokens of branches that had to differ from a sibling's, so not sampled from the policy."""

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
            Importance ratio of the policy to the distribution that a token was drawn from: 1 except for forced tokens.
        forced_tokens (`str`):
            `"keep"` changes nothing, `"reweight"` multiplies advantages by the ratio, `"mask"` removes forced tokens
            from the loss.

    Returns:
        Advantages, and a mask `(B, T)`, bool, or None if every token stays in the loss.
    """
    if forced_tokens == "reweight":
        return advantages * forced_ratio, None
    return advantages, forced_ratio == 1 if forced_tokens == "mask" else None
