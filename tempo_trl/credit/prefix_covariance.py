"""The covariance of rewards of completions that share a prefix, which the adaptive prefix baseline uses.

It is learned batch by batch from products of pairs. The estimator is ours, not from a paper. Its statistics can be
summed over processes.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.prefix_tree import PrefixTree

SOLVED_AT_ONCE = 2**21  # numbers in a batch of linear systems: 16 MiB
LARGEST_CORRELATION = 0.98  # keeps the covariance of any group's rewards positive definite, duplicates included


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """
    Sums over pairs of completions of a batch, by the number of tokens that they share. `a + b` are the sums over both.

    Args:
        shared (`np.ndarray` of shape `(L,)`, int64):
            The observed numbers of shared tokens, ascending.
        sums (`np.ndarray` of shape `(3, L)`, float64):
            At each of them: the sum of the pairs' products of rewards ([`pair_statistics`]), the number of pairs, and
            the number of completions whose closest other completion shares so many tokens.
        variances (`float`):
            Sum of the variances of the groups that are not flat.
        groups (`int`):
            Number of these groups.
    """

    shared: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros((3, 0)))
    variances: float = 0.0
    groups: int = 0

    def __add__(self, other: "PairStatistics") -> "PairStatistics":
        shared, index = np.unique(np.concatenate([self.shared, other.shared]), return_inverse=True)
        sums = np.zeros((3, len(shared)))
        np.add.at(sums, (slice(None), index), np.concatenate([self.sums, other.sums], axis=1))
        return PairStatistics(shared, sums, self.variances + other.variances, self.groups + other.groups)


class PrefixCovariance:
    r"""
    C(l): the covariance of the rewards of two completions of one prompt that share exactly l tokens, as a run learns
    it from its batches.

    The mean of the products of pairs ([`pair_statistics`]) at each number of shared tokens over the last batches is
    made non-decreasing by isotonic regression weighted by the numbers of pairs, shifted to 0 at the fewest tokens that
    at least a tenth of the pairs do not exceed, and limited to 0 to 0.98 v, where v is the mean variance of a group.
    So one completion that begins unlike all others does not shift C. C is a step function: between observed numbers it
    has the value of the lower, it is 0 below the lowest, and constant above the highest. Before the first update it is
    0: prefixes explain nothing.

    Note:
        A baseline must not depend on the reward that it is subtracted from, not even through C. So compute a batch's
        baselines with the covariance of earlier batches, and call `update` afterwards.

    Args:
        batches (`int`, *optional*, defaults to `8`):
            Number of last batches to pool. Older ones are dropped because the policy changes.

    Attributes:
        variance (`float`):
            v, the mean variance (ddof 1) of the rewards of groups that are not flat; 0 before the first such group.
        explained (`float`):
            Share of the variance of rewards that prefixes explain, 0 to 0.98: the mean of C(l) / v over completions,
            where l is the most tokens that a completion shares with another one of its group. 0 means that the
            baseline is RLOO's.
    """

    def __init__(self, batches: int = 8):
        self._statistics: deque[PairStatistics] = deque(maxlen=batches)
        self._fit()

    def update(self, statistics: list[PairStatistics]) -> None:
        """Add a batch, the statistics of all ranks, and drop the oldest."""
        self._statistics.append(sum(statistics, PairStatistics()))
        self._fit()

    def __call__(self, shared: np.ndarray) -> np.ndarray:
        """C at each number of shared tokens: float64, shape of `shared`."""
        return self._values[np.searchsorted(self._shared, shared, side="right")]

    def correlation(self, shared: np.ndarray) -> np.ndarray:
        """C / v at each number of shared tokens, 0 to 0.98: all that a linear predictor needs. 0 if v is 0."""
        return self(shared) / (self.variance or 1.0)

    def learned_metrics(self) -> dict[str, float]:
        """What the trainer logs after each update."""
        return {"tempo/prefix_r2": self.explained}

    def state_dict(self) -> dict:
        """The pooled statistics, as lists and numbers that JSON and torch can save."""
        return {"statistics": [(s.shared.tolist(), s.sums.tolist(), s.variances, s.groups) for s in self._statistics]}

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`. If it has more batches than this estimator pools, the last ones are kept."""
        self._statistics.clear()
        for shared, sums, *spread in state["statistics"]:
            self._statistics.append(PairStatistics(np.array(shared, dtype=np.int64), np.array(sums), *spread))
        self._fit()

    def _fit(self) -> None:
        pooled = sum(self._statistics, PairStatistics())
        products, pairs, closest = pooled.sums
        self.variance = pooled.variances / max(pooled.groups, 1)
        self._shared, rising = pooled.shared, np.zeros(0)
        if len(pooled.shared):
            rising = isotonic_regression(products / pairs, weights=pairs).x
            zero = rising[np.searchsorted(10 * np.cumsum(pairs), pairs.sum())]  # of the tenth of the pairs
            rising = np.clip(rising - zero, 0.0, LARGEST_CORRELATION * self.variance)
        self._values = np.append(0.0, rising)
        self.explained = float(closest @ self.correlation(pooled.shared)) / max(int(closest.sum()), 1)


def pair_statistics(tree: PrefixTree, outcome: torch.Tensor) -> PairStatistics:
    r"""
    Statistics of a batch for [`PrefixCovariance`], over the pairs of scorable completions of groups that are not flat.

    A pair j, l of a group of n scorable completions with mean m and variance w (ddof 1) has the product

    $$(r_j - m)(r_l - m) \, \frac{n}{n - 1} + \frac{w}{n}$$

    which undoes most of the centring. If c is the covariance of this pair, and no other pair is dependent, its
    expectation is $c \, (n^3 - 2 n^2 + 2 n - 2) / (n^2 (n - 1))$, about (1 - 1 / n) c, less a constant that cancels in
    differences of C. Differences come out too small, then: by a tenth at n = 8, and by a quarter at n = 3.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(R,)`):
            Rewards or outcome advantages, always in the same unit; NaN where unscorable.

    Returns:
        [`PairStatistics`], empty if every group is flat.
    """
    shared, size = pairwise_lcp(tree), tree.num_generations
    rewards = outcome.detach().cpu().double().numpy().reshape(-1, size)
    scorable = ~np.isnan(rewards) & ~flat_groups(torch.from_numpy(rewards.reshape(-1)), size).numpy()[:, None]
    count = np.maximum(scorable.sum(axis=1), 2)[:, None, None]  # a group that is not flat has at least two
    rewards = np.where(scorable, rewards, 0.0)
    deviation = np.where(scorable, rewards - rewards.sum(axis=1, keepdims=True) / count[:, 0], 0.0)
    variance = np.square(deviation).sum(axis=1)[:, None, None] / (count - 1)
    products = deviation[:, None] * deviation[:, :, None] * (count / (count - 1)) + variance / count
    known = scorable[:, :, None] & scorable[:, None] & ~np.eye(size, dtype=bool)
    closest = np.where(known, shared, -1).max(axis=2)[known.any(axis=2)]
    once = known & np.triu(np.ones((size, size), dtype=bool))
    observed, index = np.unique(shared[once], return_inverse=True)
    counted = [np.bincount(index, products[once], len(observed)), np.bincount(index, minlength=len(observed))]
    counted.append(np.bincount(np.searchsorted(observed, closest), minlength=len(observed)))
    return PairStatistics(observed, np.array(counted), float(variance.sum()), int(known.any(axis=(1, 2)).sum()))


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
