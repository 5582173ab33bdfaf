"""Eligibility traces on log-probabilities (GRPO-lambda, https://huggingface.co/papers/2510.00194).

Indices: everything is (B, T), rows are right-padded completions, and token t is reached by the tokens 0 to t. Steps of
time are the tokens of a mask, those that the policy sampled: a tool's answer takes no time.
"""

import torch
from torch.nn.functional import pad

STYLES = ("recent", "both")
LARGEST_LOG_RATIO = 80.0  # exp(88.8) is infinite in float32, and the gradient of a clipped infinite ratio is NaN


def eligibility_trace(x: torch.Tensor, decay: float, style: str = "recent") -> torch.Tensor:
    r"""
    Decayed sum over each token and its predecessors: $y_t = \sum_{l=0}^{t} \mathrm{tr}(t, l) \, x_{t-l}$.

    tr(t, l) is $(\gamma\lambda)^l$ in style "recent" (equation 1). In style "both" (equation 2) it is
    $\max((\gamma\lambda)^l, (\gamma\lambda)^{t-l})$: the first tokens weigh as much as the last. Time and memory are
    linear in T, without the T x T matrix of weights.

    Args:
        x (`torch.Tensor` of shape `(B, T)`, floating point):
            The numbers to sum; gradients flow back to it.
        decay (`float`):
            $\gamma\lambda$, from 0 to 1. At 0 "recent" is x itself; "both" adds the first token's to every other.
        style (`str`, *optional*, defaults to `"recent"`):
            `"recent"` or `"both"`.

    Returns:
        `torch.Tensor` of shape `(B, T)`, dtype and device of `x`.
    """
    return {"recent": _recent, "both": _both}[style](x, decay)


def _recent(x: torch.Tensor, decay: float) -> torch.Tensor:
    """y[t] = x[t] + decay * y[t - 1], computed recursively over pairs: log2(T) calls deep.

    Uses elementwise operations on purpose: matrix products would be rounded to bf16 under autocast, or to TF32.
    """
    width = x.shape[1]
    if width <= 1:
        return x
    even, odd = x[:, ::2], x[:, 1::2]
    odd = _recent(odd + decay * even[:, : odd.shape[1]], decay * decay)
    even = even + decay * pad(odd, (1, 0))[:, : even.shape[1]]
    return torch.stack([even, pad(odd, (0, width % 2))], dim=2).flatten(1)[:, :width]


def _both(x: torch.Tensor, decay: float) -> torch.Tensor:
    """The later half of the tokens 0 to t is weighted by the distance to t, the earlier half by the distance to 0."""
    width = x.shape[1]
    step = torch.arange(width + 1, device=x.device)
    decays = (decay ** step.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype)

    def before_half(y: torch.Tensor) -> torch.Tensor:  # column t holds y[ceil(t / 2) - 1], and 0 for t = 0
        return pad(y.repeat_interleave(2, dim=1), (1, 0))[:, :width]

    recent, early = _recent(x, decay), _recent(x * decays[:width], 1.0)
    return recent - decays[step[:width] // 2 + 1] * before_half(recent) + before_half(early)


def packed(x: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """The tokens of a mask at the start of each row, zeros behind them: `(B, T)`. Column n is step n of time."""
    start = x.new_zeros(len(x), x.shape[1] + 1)
    return start.scatter(1, _steps(inside), x)[:, : x.shape[1]]


def unpacked(x: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Numbers of steps, [`packed`], on the tokens of the mask: `(B, T)`, 0 outside of it."""
    return pad(x, (0, 1)).gather(1, _steps(inside))


def _steps(inside: torch.Tensor) -> torch.Tensor:
    """The step of each token of the mask; T for the other tokens."""
    return (inside.cumsum(dim=1) - 1).masked_fill(~inside, inside.shape[1])


def traced_reference(
    logps: torch.Tensor, old_logps: torch.Tensor, mask: torch.Tensor, decay: float, style: str = "recent"
) -> torch.Tensor:
    r"""
    Old log-probabilities that turn a token's importance ratio into GRPO-lambda's (epsilon-trace, section 3).

    GRPO-lambda's ratio of token t is the exponential of the traced log-ratios, $\exp(\sum_l \mathrm{tr}(t, l) \,
    (\log \pi_{t-l} - \log \pi^{old}_{t-l}))$. A loss that forms $\exp(\log \pi_t - x_t)$ computes just that for
    $x_t = \log \pi_t$ - trace, which is what this function returns. Its gradient replaces that of $\log \pi_t$ by the
    trace's, while the rest of the loss uses the plain log-probabilities.

    Only tokens of the mask are steps of time: those outside of it add nothing, and do not age the trace. Traced
    log-ratios are clamped to +-80, where the exponential is finite in float32.

    Args:
        logps (`torch.Tensor` of shape `(B, T)`):
            Log-probabilities of the tokens under the policy being trained.
        old_logps (`torch.Tensor` of shape `(B, T)`):
            Log-probabilities under the policy that sampled them, without gradient.
        mask (`torch.Tensor` of shape `(B, T)`):
            1 on the tokens of the loss.
        decay, style:
            As in [`eligibility_trace`].

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, with gradient; `logps` itself outside the mask.
    """
    inside = mask != 0
    log_ratio = (logps.float() - old_logps.float()).masked_fill(~inside, 0.0)
    traced = eligibility_trace(packed(log_ratio, inside), decay, style)
    return logps.float() - unpacked(traced, inside).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def trace_weights(mask: torch.Tensor, decay: float, style: str = "recent") -> torch.Tensor:
    r"""
    Weights of epsilon-weight (section 3.2): $w_t = \sum_{l=0}^{t} \mathrm{tr}(t, l)$ over the tokens of the mask.

    A positive factor commutes with the clipped minimum, so multiplying the advantage multiplies the token's loss.

    Args:
        mask (`torch.Tensor` of shape `(B, T)`):
            1 on the tokens of the loss.
        decay, style:
            As in [`eligibility_trace`].

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, at least 1 inside the mask and 0 outside.
    """
    inside = mask != 0
    return unpacked(eligibility_trace(packed(mask.float(), inside), decay, style), inside)
