"""The `tempo/*` metrics: the shape of a batch's prefix trees, and the share of credit that comes from them.

Each metric is a ratio of two sums, so that ranks can sum both and divide once.
"""

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.prefix_tree import PrefixTree


def tree_sums(tree: PrefixTree, groups: slice) -> dict[str, tuple[float, float]]:
    """
    Numerator and denominator of the metrics of the tree's shape, over a range of its groups.

    `branch_nodes`: states with at least two different next tokens, per group. `branch_depth`: their mean depth in
    tokens. `shared_prefix`: mean number of tokens that a completion shares with the closest other one.
    `unique_tokens`: nodes of the trees / tokens. `duplicates`: completions that repeat an earlier one / completions.
    """
    size = tree.num_generations
    places = slice(groups.start * size, groups.stop * size)
    branching = (tree.num_children() > 1) & (tree.start >= places.start) & (tree.start < places.stop)
    lengths, lcp = tree.lengths[tree.order], tree.lcp
    repeats = lcp == np.maximum(lengths, np.append(0, lengths[:-1]))
    shared = tree.longest_shared_prefix()[places].clip(min=0).sum()
    completions, tokens = len(lcp[places]), lengths[places].sum()
    return {
        "branch_nodes": (branching.sum(), completions / size),
        "branch_depth": (tree.depth[branching].sum(), branching.sum()),
        "shared_prefix": (shared, completions),
        "unique_tokens": (tokens - lcp[places].clip(min=0).sum(), tokens),
        "duplicates": (repeats[places].sum(), completions),
    }


def value_error_sums(
    advantages: torch.Tensor,
    outcome: torch.Tensor,
    loss_mask: torch.Tensor,
    num_generations: int,
    counted: torch.Tensor,
) -> tuple[float, float]:
    r"""
    Numerator and denominator of a baseline's squared error relative to RLOO's.

    $$\frac{\sum_i \mathrm{mean}_t (g_i - b_{i,t})^2}{\sum_i (g_i - m_{-i})^2}$$

    over the counted completions of groups that are not flat, where m is the mean outcome of the others. Below 1 the
    baseline predicts rewards better than the mean of the others does.

    Args:
        advantages (`torch.Tensor` of shape `(R, T)`):
            g - b.
        outcome (`torch.Tensor` of shape `(R,)`):
            Outcome advantages g, NaN where unscorable.
        loss_mask (`torch.Tensor` of shape `(R, T)`, bool):
            Tokens to average over.
        num_generations (`int`):
            Completions in a group.
        counted (`torch.Tensor` of shape `(R,)`, bool):
            Rows to sum over.
    """
    groups = outcome.double().view(-1, num_generations)
    scorable = ~groups.isnan()
    others = (scorable.sum(dim=1, keepdim=True) - 1).clamp(min=1)
    error = groups - (groups.nansum(dim=1, keepdim=True) - groups) / others
    tokens = loss_mask.sum(dim=1)
    used = (scorable & ~flat_groups(outcome, num_generations)[:, None]).flatten() & counted & (tokens > 0)
    own = advantages.double().square().mul_(loss_mask).sum(dim=1) / tokens.clamp(min=1)
    return own[used].sum().item(), error.flatten()[used].square().sum().item()


def credit_sums(outcome: torch.Tensor, added: torch.Tensor, loss_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """
    Numerator and denominator, `(B, 2)`, of each completion's share of added credit and share of branch tokens.

    `added_share`: sum |added| / sum (|outcome| + |added|). `branch_tokens`: tokens to which something is added /
    tokens. Both are over the tokens of the loss, with what is added in the units of the outcome, without `td_coef`.
    """
    mask = loss_mask.to(added.dtype)
    added_mass, tokens = (added.abs() * mask).sum(dim=1), mask.sum(dim=1)
    branch_tokens = ((added != 0) * mask).sum(dim=1)
    return {
        "added_share": torch.stack([added_mass, added_mass + outcome.abs() * tokens], dim=1),
        "branch_tokens": torch.stack([branch_tokens, tokens], dim=1),
    }
