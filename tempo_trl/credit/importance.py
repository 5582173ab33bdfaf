"""Sequence-level importance ratios that keep token credit (GSPO-token, https://huggingface.co/papers/2507.18071)."""

import torch


def gspo_token_reference(logps: torch.Tensor, old_logps: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    r"""
    Old log-probabilities that turn a token-level ratio into GSPO-token's.

    GSPO multiplies every token by the ratio $s_i = \exp(\frac{1}{|y_i|} \sum_t \log \pi_t - \log \pi^{old}_t)$.
    Its gradient gives each token the mean of the sequence's advantages. GSPO-token has the same value and keeps each
    token's own advantage: $s_{i,t} = \mathrm{sg}[s_i] \, \pi_t / \mathrm{sg}[\pi_t]$ (section 4.3). A loss that forms
    $\exp(\log \pi_t - x_t)$ computes just that for $x_t = \mathrm{sg}[\log \pi_t] - \log \mathrm{sg}[s_i]$, which is
    what this function returns.

    Args:
        logps (`torch.Tensor` of shape `(B, T)`):
            Log-probabilities of the tokens under the policy being trained.
        old_logps (`torch.Tensor` of shape `(B, T)`):
            Log-probabilities under the policy that sampled them.
        mask (`torch.Tensor` of shape `(B, T)`):
            1 on the tokens of the loss.

    Returns:
        `torch.Tensor` of shape `(B, T)`, without gradient.
    """
    logps = logps.detach()
    log_ratio = ((logps - old_logps) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1.0)
    return logps - log_ratio
