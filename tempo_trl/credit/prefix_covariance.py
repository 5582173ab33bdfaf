"""The covariance of rewards of completions that share a prefix, which the adaptive prefix baseline uses.

The estimator is ours, not from a paper. It is updated batch by batch, with statistics that can be summed over
processes.
"""

import numpy as np
import torch

from tempo_trl.credit.level_covariance import Deviations, LearnedCovariance, LevelCovariance, PairStatistics
from tempo_trl.credit.prefix_tree import PrefixTree

SOLVED_AT_ONCE = 2**21  # numbers in a batch of linear systems: 16 MiB


class PrefixCovariance(LevelCovariance):
    """
    C(l): the covariance of the rewards of two completions of one prompt that share exactly l tokens.

    The level of a [`~tempo_trl.credit.level_covariance.LevelCovariance`] is the number of shared tokens. Its
    statistics are those of [`pair_statistics`].
    """


class LearnedPrefixes(LearnedCovariance):
    """
    How well prefixes predict rewards, learned from the batches of a run. A credit function may read the covariance.

    Its `update` takes the `Batch.pairs` of all ranks, as `Credit.statistics`.
    """

    def __init__(self):
        super().__init__(PrefixCovariance())

    def learned_metrics(self) -> dict[str, float]:
        return {"tempo/prefix_r2": self.covariance.explained}


def pair_statistics(tree: PrefixTree, outcome: torch.Tensor) -> PairStatistics:
    """
    Statistics of a batch for [`PrefixCovariance`], over the pairs of scorable completions of groups that are not flat.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(R,)`):
            Rewards or outcome advantages, always in the same unit; NaN where unscorable.

    Returns:
        [`~tempo_trl.credit.level_covariance.PairStatistics`] by number of shared tokens, empty if every group is flat.
    """
    shared, size = pairwise_lcp(tree), tree.num_generations
    groups = Deviations.of(outcome.detach().cpu().double().numpy().reshape(-1, size))
    known = groups.scorable[:, :, None] & groups.scorable[:, None, :] & ~np.eye(size, dtype=bool)
    deviation, scorable, count, variance = groups
    every = Deviations(deviation[:, None], scorable[:, None], count[:, None], variance[:, None])  # (P, 1, G)
    products = every.products_with(groups.deviation[:, :, None])
    once = known & np.triu(np.ones((size, size), dtype=bool))
    closest = np.where(known, shared, -1).max(axis=2)[known.any(axis=2)]
    not_flat = known.any(axis=(1, 2)).sum()
    return PairStatistics.of(shared[once], products[once], closest, groups.variance.sum(), not_flat)


def pairwise_lcp(tree: PrefixTree) -> np.ndarray:
    """Number of tokens shared by each pair of rows of a group, `(groups, G, G)`, int64; a row's length for itself."""
    size = tree.num_generations
    neighbours = tree.lcp.reshape(-1, 1, size)
    later = np.triu(np.ones((size, size), dtype=bool), k=1)
    # The tokens shared by two places are the minimum over neighbouring pairs between them, in sorted order.
    shared = np.minimum.accumulate(np.where(later, neighbours, np.iinfo(np.int64).max), axis=2)
    shared = np.where(later, shared, 0)
    shared += shared.transpose(0, 2, 1)
    shared[:, np.arange(size), np.arange(size)] = tree.lengths[tree.order].reshape(-1, size)

    place = np.argsort(tree.order).reshape(-1, size) % size  # of each row
    group = np.arange(len(place))[:, None, None]
    return shared[group, place[:, :, None], place[:, None, :]]


def predictor(
    correlations: np.ndarray, group: np.ndarray, others: np.ndarray, rewards: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""
    Parts of the best linear unbiased predictor: $m = 1^T K^{-1} r / 1^T K^{-1} 1$ and $K^{-1} (r - m 1)$.

    The prediction of a quantity whose correlations with the others are c is m + c^T K^-1 (r - m 1).

    Args:
        correlations (`np.ndarray` of shape `(groups, G, G)`):
            Correlations of the rewards of different rows of a group; the diagonal is ignored.
        group (`np.ndarray` of shape `(Q,)`):
            The group of each prediction.
        others (`np.ndarray` of shape `(Q, G)`, bool):
            The rows that it is computed from.
        rewards (`np.ndarray` of shape `(Q, G)`):
            Their rewards, 0 elsewhere.

    Returns:
        m, `(Q,)`, NaN where there are no others, and the weights of c, `(Q, G)`, 0 outside the others.
    """
    size = others.shape[1]
    solutions = np.empty((len(others), size, 2))
    step = max(1, SOLVED_AT_ONCE // size**2)
    for part in (slice(start, start + step) for start in range(0, len(others), step)):
        among = others[part, :, None] & others[part, None, :]
        matrix = correlations[group[part]] * among  # the identity over everybody else
        matrix[:, np.arange(size), np.arange(size)] = 1.0
        solutions[part] = np.linalg.solve(matrix, np.stack([others[part], rewards[part]], axis=2))
    ones, scores = solutions[..., 0], solutions[..., 1]
    with np.errstate(invalid="ignore"):  # 0 / 0
        mean = scores.sum(axis=1) / ones.sum(axis=1)
    return mean, np.where(others, scores - mean[:, None] * ones, 0.0)
