"""The covariance of rewards of completions that share a prefix, which the adaptive prefix baseline uses.

The estimator is ours, not from a paper. It is updated batch by batch, with statistics that can be summed over
processes.
"""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.prefix_tree import PrefixTree

LARGEST_CORRELATION = 0.98  # keeps the covariance of any group's rewards positive definite, duplicates included
SOLVED_AT_ONCE = 2**21  # numbers in a batch of linear systems: 16 MiB


def _no_counts() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """
    Sums over pairs of completions of a batch, by the number of shared tokens. `a + b` are the sums over both batches.

    Args:
        shared (`np.ndarray` of shape `(L,)`, int64):
            The observed numbers of shared tokens, ascending.
        products (`np.ndarray` of shape `(L,)`, float64):
            Sum of the pairs' products of rewards, corrected for centring: see [`pair_statistics`].
        pairs (`np.ndarray` of shape `(L,)`, int64):
            Number of pairs.
        rows (`np.ndarray` of shape `(L,)`, int64):
            Number of completions that share this many tokens with the closest other one of their group.
        variances (`float`):
            Sum of the variances of the groups that are not flat.
        groups (`int`):
            Number of these groups.
    """

    shared: np.ndarray = field(default_factory=_no_counts)
    products: np.ndarray = field(default_factory=lambda: np.zeros(0))
    pairs: np.ndarray = field(default_factory=_no_counts)
    rows: np.ndarray = field(default_factory=_no_counts)
    variances: float = 0.0
    groups: int = 0

    def __add__(self, other: "PairStatistics") -> "PairStatistics":
        shared, index = np.unique(np.concatenate([self.shared, other.shared]), return_inverse=True)

        def merged(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            return np.bincount(index, np.concatenate([ours, theirs]), len(shared)).astype(ours.dtype)

        return PairStatistics(
            shared,
            merged(self.products, other.products),
            merged(self.pairs, other.pairs),
            merged(self.rows, other.rows),
            self.variances + other.variances,
            self.groups + other.groups,
        )


def pair_statistics(tree: PrefixTree, outcome: torch.Tensor) -> PairStatistics:
    r"""
    Statistics of a batch for [`PrefixCovariance`], over the pairs of scorable completions of groups that are not flat.

    A pair j, l of a group of n scorable completions with mean m and variance w (ddof 1) adds

    $$(r_j - m)(r_l - m) \, \frac{n}{n - 1} + \frac{w}{n}$$

    to the sum for the number of tokens that the two share: the product of the deviations, corrected for centring.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(R,)`):
            Rewards or outcome advantages, always in the same unit; NaN where unscorable.

    Returns:
        [`PairStatistics`], empty if every group is flat.
    """
    shared, pairs = pairwise_lcp(tree), pair_products(outcome, tree.num_generations)
    once = pairs.known & np.triu(np.ones(shared.shape[1:], dtype=bool))
    closest = np.where(pairs.known, shared, -1).max(axis=2)[pairs.known.any(axis=2)]
    lengths, index = np.unique(shared[once], return_inverse=True)
    return PairStatistics(
        lengths,
        np.bincount(index, pairs.products[once], len(lengths)),
        np.bincount(index, minlength=len(lengths)),
        np.bincount(np.searchsorted(lengths, closest), minlength=len(lengths)),
        float(pairs.variances.sum()),
        int(pairs.known.any(axis=(1, 2)).sum()),
    )


class PairProducts(NamedTuple):
    """
    Products of the rewards of the pairs of a group.

    Args:
        products (`np.ndarray` of shape `(P, G, G)`, float64):
            Product of the deviations of a pair, corrected for centring: see [`pair_statistics`].
        known (`np.ndarray` of shape `(P, G, G)`, bool):
            Pairs of different, scorable completions of groups that are not flat.
        variances (`np.ndarray` of shape `(P,)`, float64):
            Variance (ddof 1) of the rewards of a group, 0 if it is flat.
    """

    products: np.ndarray
    known: np.ndarray
    variances: np.ndarray


def pair_products(outcome: torch.Tensor, num_generations: int) -> PairProducts:
    """The products of the pairs of a batch. Arguments as in [`pair_statistics`]."""
    size = num_generations
    outcome = outcome.detach().cpu().double()
    rewards = outcome.numpy().reshape(-1, size)
    scorable = ~np.isnan(rewards) & ~flat_groups(outcome, size).numpy()[:, None]
    count = np.maximum(scorable.sum(axis=1, keepdims=True), 2)  # a group that is not flat has at least two
    rewards = np.where(scorable, rewards, 0.0)
    deviations = np.where(scorable, rewards - rewards.sum(axis=1, keepdims=True) / count, 0.0)
    variances = np.square(deviations).sum(axis=1, keepdims=True) / (count - 1)

    known = scorable[:, :, None] & scorable[:, None, :] & ~np.eye(size, dtype=bool)
    products = deviations[:, :, None] * deviations[:, None, :] * (count / (count - 1))[..., None]
    return PairProducts(products + (variances / count)[..., None], known, variances[:, 0])


class PrefixCovariance:
    r"""
    C(l): the covariance of the rewards of two completions of one prompt that share exactly l tokens.

    The mean of [`pair_statistics`] at each l over the last batches is made non-decreasing in l by isotonic regression
    weighted by the numbers of pairs, shifted to 0 at the shortest observed l, and limited to 0.98 v, where v is the
    mean variance of a group. C is a step function: between observed lengths it has the value of the shorter, it is 0
    below the shortest, and constant beyond the longest. Before the first update it is 0: prefixes explain nothing.

    Note:
        A baseline must not depend on the reward that it is subtracted from, not even through C. So compute a batch's
        baselines with the covariance of earlier batches, and call `update` afterwards.

    Args:
        batches (`int`, *optional*, defaults to `8`):
            Number of last batches to pool. Older ones are dropped because the policy changes.

    Raises:
        ValueError: if `batches` is less than 1.
    """

    def __init__(self, batches: int = 8):
        if batches < 1:
            raise ValueError(f"`batches` must be at least 1, got {batches!r}.")
        self._statistics: deque[PairStatistics] = deque(maxlen=batches)
        self._fit()

    @property
    def variance(self) -> float:
        """v, the mean variance (ddof 1) of the rewards of groups that are not flat; 0 before the first such group."""
        return self._variance

    @property
    def explained(self) -> float:
        r"""
        Share of the variance of rewards that prefixes explain, 0 to 0.98: the mean of C(l) / v over completions.

        l is the number of tokens that a completion shares with the closest other one of its group. 0 means that the
        adaptive baseline is RLOO's.
        """
        return self._explained

    def update(self, statistics: PairStatistics) -> None:
        """Add a batch and drop the oldest. In distributed training pass the sum over processes on every process."""
        self._statistics.append(statistics)
        self._fit()

    def __call__(self, shared: np.ndarray) -> np.ndarray:
        """C at each number of shared tokens: float64, shape of `shared`."""
        return self._levels[np.searchsorted(self._lengths, shared, side="right")]

    def correlation(self, shared: np.ndarray) -> np.ndarray:
        """C / v at each number of shared tokens, 0 to 0.98: all that a linear predictor needs. 0 if v is 0."""
        return self(shared) / (self._variance or 1.0)

    def state_dict(self) -> dict:
        """The pooled statistics, as lists and numbers that JSON and torch can save."""
        return {"statistics": [_as_lists(statistics) for statistics in self._statistics]}

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`. If it has more batches than this estimator pools, the last ones are kept."""
        self._statistics.clear()
        self._statistics.extend(_from_lists(statistics) for statistics in state["statistics"])
        self._fit()

    def _fit(self) -> None:
        pooled = sum(self._statistics, PairStatistics())
        self._variance = pooled.variances / max(pooled.groups, 1)
        self._lengths, rising = pooled.shared, np.zeros(0)
        if len(pooled.shared):
            means = pooled.products / pooled.pairs
            rising = isotonic_regression(means, weights=pooled.pairs).x
            rising = np.minimum(rising - rising[0], LARGEST_CORRELATION * self._variance)
        self._levels = np.append(0.0, rising)
        self._explained = float(pooled.rows @ self.correlation(pooled.shared)) / max(int(pooled.rows.sum()), 1)


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


def _as_lists(statistics: PairStatistics) -> dict:
    return {name: np.asarray(value).tolist() for name, value in asdict(statistics).items()}


def _from_lists(state: dict) -> PairStatistics:
    empty = PairStatistics()
    arrays = {
        name: np.asarray(state[name], getattr(empty, name).dtype)
        for name in asdict(empty)
        if isinstance(state[name], list)
    }
    return PairStatistics(**{**state, **arrays})
