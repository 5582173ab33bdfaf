"""The `tempo/*` metrics: the shape of a batch's prefix trees, and the share of credit that comes from them.

Each metric is a ratio of two sums, so that ranks can sum both and divide once.
"""

import numpy as np
import torch

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


def credit_sums(outcome: torch.Tensor, td: torch.Tensor, loss_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """
    Numerator and denominator, `(B, 2)`, of each completion's share of TD credit and share of branch tokens.

    `td_share`: sum |TD| / sum (|outcome| + |TD|). `branch_tokens`: tokens with a non-zero TD error / tokens. Both are
    taken over the tokens of the loss, with TD errors in the units of the outcome and without `td_coef`.
    """
    mask = loss_mask.to(td.dtype)
    td_mass, tokens = (td.abs() * mask).sum(dim=1), mask.sum(dim=1)
    branch_tokens = ((td != 0) * mask).sum(dim=1)
    return {
        "td_share": torch.stack([td_mass, td_mass + outcome.abs() * tokens], dim=1),
        "branch_tokens": torch.stack([branch_tokens, tokens], dim=1),
    }
