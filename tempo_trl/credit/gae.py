"""Generalised advantage estimation and the critic's loss, as in PPO (https://huggingface.co/papers/1707.06347).

Indices: everything is (B, T), rows are right-padded completions, and `values[t]` is the value of the state before
token t: the prompt and the tokens before t. `mask` is 1 on the tokens that the policy sampled.
"""

import torch
from torch.nn.functional import pad

from tempo_trl.credit.advantages import are_equal
from tempo_trl.credit.traces import eligibility_trace, packed, unpacked

SMALLEST_VARIANCE = 1e-8  # added to the variance, so that advantages that are all the same become 0


def gae(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Generalised advantages and returns (https://huggingface.co/papers/1506.02438, equation 16).

    $A_t = \sum_{l \ge 0} (\gamma\lambda)^l \, \delta_{t+l}$ with $\delta_t = r_t + \gamma V_{t+1} - V_t$; the return,
    the critic's target, is $A_t + V_t$. Only tokens in the mask are time steps: $t + 1$ is the row's next token in the
    mask, and a token outside of it (of a tool) only changes the states after it. After the last token of the mask the
    value is 0, because the episode is over. This holds for truncated completions too: their reward is final.

    Linear in T, in time and memory, without a loop over tokens.

    Args:
        rewards (`torch.Tensor` of shape `(B, T)`, floating point):
            Reward of each token, ignored outside the mask.
        values (`torch.Tensor` of shape `(B, T)`, floating point):
            Value of the state before each token, ignored outside the mask.
        mask (`torch.Tensor` of shape `(B, T)`):
            1 on the tokens of the loss.
        gamma (`float`):
            Discount of a step, from 0 to 1.
        lam (`float`):
            Lambda, from 0 to 1: 0 gives one-step TD errors, 1 the discounted sum of rewards minus the value.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: advantages and returns, each `(B, T)`, dtype and device of `values`, 0
        outside the mask.
    """
    inside = mask != 0
    reward, value = packed(rewards.to(values.dtype), inside), packed(values, inside)
    td_error = reward + gamma * pad(value, (0, 1))[:, 1:] - value
    advantages = unpacked(eligibility_trace(td_error.flip(1), gamma * lam).flip(1), inside)
    return advantages, (advantages + values).masked_fill(~inside, 0.0)


def at_last_token(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Put the reward of a completion, `(B,)`, on its last token of the mask: `(B, T)`, zero elsewhere.

    A row without such a token has no reward.
    """
    inside = mask != 0
    is_last = inside & (inside.cumsum(dim=1) == inside.sum(dim=1, keepdim=True))
    return torch.where(is_last, rewards.unsqueeze(1), 0.0)


def moments(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Number, sum and sum of squares of `x` over the mask, `(3,)`, float64. They can be summed over ranks.
    """
    inside = x.double().masked_fill(mask == 0, 0.0)
    return torch.stack([(mask != 0).sum().double(), inside.sum(), inside.square().sum()])


def mean_and_variance(moments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and unbiased variance, 0-dim float64, from [`moments`]. Both are 0 if there are no numbers."""
    number, total, squares = moments
    mean = total / number.clamp(min=1)
    return mean, ((squares - number * mean.square()) / (number - 1).clamp(min=1)).clamp(min=0)


def whiten(advantages: torch.Tensor, mask: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    r"""
    $(A - \mathrm{mean}) / \sqrt{\mathrm{variance} + 10^{-8}}$ on the mask, 0 outside of it, and 0 if all A are equal
    up to rounding ([`~tempo_trl.credit.advantages.are_equal`]).

    Args:
        advantages, mask (`torch.Tensor` of shape `(B, T)`):
            Advantages, and 1 on the tokens of the loss.
        mean, variance (`torch.Tensor`, 0-dim):
            Mean and variance over all advantages of the generation batch and all ranks: see [`mean_and_variance`].

    Returns:
        `torch.Tensor` of shape `(B, T)`, dtype and device of `advantages`.
    """
    whitened = (advantages - mean) * (variance + SMALLEST_VARIANCE).rsqrt()
    flat = are_equal(mean - variance.sqrt(), mean + variance.sqrt())
    return whitened.to(advantages.dtype).masked_fill((mask == 0) | flat, 0.0)


def value_loss(values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    r"""
    The critic's loss of each token, $\frac{1}{2} (V - R)^2$.

    Args:
        values (`torch.Tensor` of shape `(B, T)`):
            The critic's current values; gradients flow back to it.
        returns (`torch.Tensor` of shape `(B, T)`):
            Its targets.
        mask (`torch.Tensor` of shape `(B, T)`):
            1 on the tokens of the loss.

    Returns:
        `torch.Tensor` of shape `(B, T)`, 0 outside the mask.
    """
    return 0.5 * (values - returns).square().masked_fill(mask == 0, 0.0)
