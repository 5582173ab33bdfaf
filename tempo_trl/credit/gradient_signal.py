"""How much of a batch's gradient is signal: the part on which its groups agree, from products across groups."""

import torch

WIDTH = 1024  # numbers per group
TOKENS = 4096  # projected at a time, which bounds the memory


def random_signs(size: int, width: int = WIDTH) -> torch.Tensor:
    """
    The matrices P and Q of [`group_sketches`]: independent random signs, times `width ** -0.25`.

    Args:
        size (`int`):
            Size H of a hidden state.
        width (`int`, *optional*, defaults to `1024`):
            Numbers K of a sketch. A product of two sketches deviates from its mean by about `3 / K ** 0.5` of the
            product of their norms.

    Returns:
        `torch.Tensor` of shape `(2, H, K)`, float32 on the CPU, the same in every call and on every rank.
    """
    signs = torch.randint(0, 2, (2, size, width), generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return (2 * signs - 1) * width**-0.25


def group_sketches(
    gradients: torch.Tensor, states: torch.Tensor, groups: torch.Tensor, num_groups: int, signs: torch.Tensor
) -> torch.Tensor:
    r"""
    A sketch of each group's gradient $G_g = \sum_t d_t h_t^\top$, that of a linear map on the last hidden state:

    $$s_g = \sum_{t \in g} (P^\top d_t) \odot (Q^\top h_t), \qquad \mathbb{E}_{P, Q}\, s_f \cdot s_g = \langle G_f, G_g
    \rangle$$

    Args:
        gradients (`torch.Tensor` of shape `(N, H)`, floating point):
            Gradient $d_t$ of the loss with respect to the hidden state of each token.
        states (`torch.Tensor` of shape `(N, H)`, floating point):
            The hidden states $h_t$.
        groups (`torch.Tensor` of shape `(N,)`, int64):
            Group of each token, from 0 to `num_groups` - 1.
        num_groups (`int`):
            Number n of groups.
        signs (`torch.Tensor` of shape `(2, H, K)`, float32):
            P and Q ([`random_signs`]).

    Returns:
        `torch.Tensor` of shape `(n, K)`, float32; 0 for groups without a token.
    """
    sketches = signs.new_zeros(num_groups, signs.shape[2])
    for d, h, group in zip(gradients.split(TOKENS), states.split(TOKENS), groups.split(TOKENS), strict=True):
        sketches.index_add_(0, group, (d.float() @ signs[0]) * (h.float() @ signs[1]))
    return sketches


def signal_and_square(sketches: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    r"""
    Squared norm of the signal in a batch's gradient, and of the whole gradient. With $s = \sum_g s_g$ and $m_g$ rows:

    $$\frac{|s|^2 - \sum_g |s_g|^2}{1 - \sum_g m_g^2 / (\sum_g m_g)^2}, \qquad |s|^2$$

    The numerator on the left is the sum of products across groups. Their noise is independent, so the first number is
    an unbiased estimate of the squared norm of the mean of $s$. It may be negative. If all n groups have equally many
    rows, the second is $n^2$ (signal + noise / n) in the mean, where signal is the squared norm of a group's mean
    gradient and noise the trace of its covariance. With B = noise / signal, the gradient noise scale of "An Empirical
    Model of Large-Batch Training" (https://huggingface.co/papers/1812.06162) in groups, the share of signal in the
    second number is 1 / (1 + B / n).

    Args:
        sketches (`torch.Tensor` of shape `(n, K)`):
            Sketches of the groups' gradients.
        rows (`torch.Tensor` of shape `(n,)`):
            Completions of each group in the batch; 0 for groups without any.

    Returns:
        `torch.Tensor` of shape `(2,)`. The first is NaN or infinite if fewer than two groups have rows.
    """
    square = sketches.sum(dim=0).square().sum()
    across = square - sketches.square().sum()
    return torch.stack([across / (1 - (rows / rows.sum()).square().sum()), square])
