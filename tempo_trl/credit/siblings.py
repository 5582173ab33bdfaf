"""Values on an explicit tree, and advantages among siblings: the credit of both methods called TreeRPO.

A tree is given by its segments (nodes): `parent` is (N,), the parent of each segment, where the prompts are numbered
N, N + 1, ...; `leaf` is (B,), the segment in which each completion ends; `segment` is (B, T), the segment of each
token, -1 after a row's end. Segments are numbered over all trees of a batch, parents before their children.
"""

import torch

from tempo_trl.credit.advantages import EPSILON, are_equal
from tempo_trl.credit.checks import check_choice

SIBLING_SCALES = ("none", "std", "bernoulli")


def sibling_advantages(
    segment: torch.Tensor,
    parent: torch.Tensor,
    leaf: torch.Tensor,
    rewards: torch.Tensor,
    *,
    average: str = "children",
    scale: str = "none",
    sizes: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Advantage of every token: the value of its segment relative to those of the segment's siblings.

    $$A_n = \frac{V(n) - \mathrm{mean}_{m \in \mathrm{sib}(n)} V(m)}{\mathrm{scale}}$$

    where sib(n) holds the children of n's parent, n itself included. TreeRPO (https://huggingface.co/papers/2506.05183)
    takes `average="children"`; hierarchical TreeRPO `average="leaves"` and `scale="none"` (sections 3.1.2 and 3.1.3).
    Siblings of equal value, or a lone child, get exactly 0.

    Args:
        segment (`torch.Tensor` of shape `(B, T)`, integer):
            Segment of each token, -1 past a row's end.
        parent (`torch.Tensor` of shape `(N,)`, integer):
            Parent of each segment, N or more for a prompt.
        leaf (`torch.Tensor` of shape `(B,)`, integer):
            Segment in which each completion ends.
        rewards (`torch.Tensor` of shape `(B,)`):
            Rewards, NaN for unscorable completions, which are ignored: segments that only they reach get 0.
        average (`str`, *optional*, defaults to `"children"`):
            As in [`segment_values`].
        scale (`str`, *optional*, defaults to `"none"`):
            `"none"` for 1, `"std"` for the siblings' standard deviation (ddof 1, + 1e-4, as TRL's), `"bernoulli"` for
            $\sqrt{m (1 - m)}$ of their mean m, which requires rewards between 0 and 1.
        sizes (`torch.Tensor` of shape `(B,)`, *optional*):
            Size of the sum that each reward is ([`~tempo_trl.credit.advantages.are_equal`]). Defaults to that of the
            reward.

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the device of `segment`.

    Raises:
        ValueError: for another scale, and for rewards outside of 0 to 1 with `"bernoulli"`.
    """
    check_choice("scale", scale, SIBLING_SCALES)
    sizes = (rewards.abs() if sizes is None else sizes).masked_fill(rewards.isnan(), torch.nan)
    of_both = (segment_values(parent.cpu(), leaf.cpu(), each.detach().cpu(), average) for each in (rewards, sizes))
    advantages = _relative_to_siblings(parent.cpu(), *of_both, scale)
    padded = torch.cat([advantages, torch.zeros(1, dtype=advantages.dtype)])  # -1 is the last: 0 past a row's end
    return padded.float().to(segment.device)[segment]


def segment_values(
    parent: torch.Tensor, leaf: torch.Tensor, rewards: torch.Tensor, average: str = "children"
) -> torch.Tensor:
    r"""
    Value of the state at the end of every segment, and of the prompts.

    The value of a leaf is the mean reward of the completions that end there. The value of any other node is, for
    `"children"`, the mean of its children's values, $V(n) = \frac{1}{|C(n)|} \sum_{c \in C(n)} V(c)$, and for
    `"leaves"` the mean of all leaves below it. The two differ if branches have unequal numbers of leaves.

    Args:
        parent (`torch.Tensor` of shape `(N,)`, integer):
            Parent of each segment, N or more for a prompt.
        leaf (`torch.Tensor` of shape `(B,)`, integer):
            Segment in which each completion ends.
        rewards (`torch.Tensor` of shape `(B,)`):
            Rewards; NaNs are ignored.
        average (`str`, *optional*, defaults to `"children"`):
            `"children"` or `"leaves"`.

    Returns:
        `torch.Tensor` of shape `(N + P,)`, float64, the P prompts last; NaN where no completion below is scorable.
    """
    nodes = max(len(parent), int(parent.max()) + 1 if len(parent) else 0)
    scorable = ~rewards.isnan()
    total = torch.bincount(leaf[scorable], rewards[scorable].double(), nodes)
    rows = torch.bincount(leaf[scorable], minlength=nodes)
    # A leaf counts once, however many rows end in it.
    total, count = (total / rows.clamp(min=1)).tolist(), (rows > 0).double().tolist()
    for segment, above in reversed([*enumerate(parent.tolist())]):
        if count[segment]:
            weight = {"children": 1.0, "leaves": count[segment]}[average]
            total[above] += total[segment] / count[segment] * weight
            count[above] += weight
    values = [sum_ / n if n else torch.nan for sum_, n in zip(total, count, strict=True)]
    return torch.tensor(values, dtype=torch.float64)


def count_once(segment: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A mask that keeps each token of a tree in one row only, the first with the token in `mask`. `(B, T)`, bool.

    Args:
        segment (`torch.Tensor` of shape `(B, T)`, integer):
            Segment of each token, -1 past a row's end.
        mask (`torch.Tensor` of shape `(B, T)`):
            Non-zero on the tokens of the loss. Segments of a row without any are kept in the next row that has them.
    """
    inside = (segment >= 0) & (mask > 0)
    row = torch.arange(len(segment), device=segment.device)[:, None].expand_as(segment)
    first = torch.full((int(segment.max()) + 1,), len(segment), device=segment.device)
    first.scatter_reduce_(0, segment[inside], row[inside], "amin")
    return inside & (first[segment.clamp(min=0)] == row)


def _relative_to_siblings(parent: torch.Tensor, values: torch.Tensor, sizes: torch.Tensor, scale: str) -> torch.Tensor:
    """Advantage of each segment among the children of its parent: `(N,)`, 0 where nothing differs or is unscorable."""
    own = values[: len(parent)]
    scorable = ~own.isnan()
    own, above = own[scorable], parent[scorable]
    count = torch.bincount(above, minlength=len(values)).double()
    mean = torch.bincount(above, own, len(values)) / count.clamp(min=1)
    centred = own - mean[above]
    given = (own, "amin"), (own, "amax"), (sizes[: len(parent)][scorable], "amax")
    low, high, size = (mean.scatter_reduce(0, above, each, kind, include_self=False) for each, kind in given)
    if scale == "std":
        squares = torch.bincount(above, centred.square(), len(values))
        centred = centred / ((squares / (count - 1).clamp(min=1)).sqrt() + EPSILON)[above]
    elif scale == "bernoulli":
        if len(own) and not (own.min() >= 0 and own.max() <= 1):
            raise ValueError(
                f"got values from {own.min():g} to {own.max():g}, but `bernoulli` needs rewards between 0 and 1. Use "
                "`std`, or a reward of 0 or 1."
            )
        centred = centred / (mean * (1 - mean)).sqrt()[above]
    advantages = torch.zeros(len(parent), dtype=torch.float64)
    advantages[scorable] = torch.where(are_equal(low, high, size)[above], 0.0, centred)
    return advantages
