"""The covariance of rewards of completions that share a prefix, which the adaptive prefix baseline uses.

It is learned batch by batch from products of pairs. A level says how closely two completions agree: the number of
tokens that they share. The estimator is ours, not from a paper. Its statistics can be summed over processes.
"""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.prefix_tree import PrefixTree

SOLVED_AT_ONCE = 2**21  # numbers in a batch of linear systems: 16 MiB
LARGEST_CORRELATION = 0.98  # keeps the covariance of any group's rewards positive definite, duplicates included


def _no_counts() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """
    Sums over pairs of completions of a batch, by their level of agreement. `a + b` are the sums over both batches.

    Args:
        levels (`np.ndarray` of shape `(L,)`, int64):
            The observed levels, ascending.
        products (`np.ndarray` of shape `(L,)`, float64):
            Sum of the pairs' products of rewards, corrected for centring: see [`Deviations`].
        pairs (`np.ndarray` of shape `(L,)`, int64):
            Number of pairs.
        closest (`np.ndarray` of shape `(L,)`, int64):
            Number of completions, or states, whose closest agreement with another completion is at this level.
        variances (`float`):
            Sum of the variances of the groups that are not flat.
        groups (`int`):
            Number of these groups.
    """

    levels: np.ndarray = field(default_factory=_no_counts)
    products: np.ndarray = field(default_factory=lambda: np.zeros(0))
    pairs: np.ndarray = field(default_factory=_no_counts)
    closest: np.ndarray = field(default_factory=_no_counts)
    variances: float = 0.0
    groups: int = 0

    def __add__(self, other: "PairStatistics") -> "PairStatistics":
        levels, index = np.unique(np.concatenate([self.levels, other.levels]), return_inverse=True)

        def merged(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            return np.bincount(index, np.concatenate([ours, theirs]), len(levels)).astype(ours.dtype)

        return PairStatistics(
            levels,
            merged(self.products, other.products),
            merged(self.pairs, other.pairs),
            merged(self.closest, other.closest),
            self.variances + other.variances,
            self.groups + other.groups,
        )

    @classmethod
    def of(
        cls, level: np.ndarray, products: np.ndarray, closest: np.ndarray, variances: float, groups: int
    ) -> "PairStatistics":
        """
        The sums over pairs of completions.

        Args:
            level, products (`np.ndarray` of shape `(pairs,)`):
                Of each pair.
            closest (`np.ndarray`):
                Closest level of each completion, or state; each of them is in `level`.
            variances, groups:
                As above.
        """
        lowest = level.min(initial=0)
        pairs = np.bincount(level - lowest)
        observed = np.flatnonzero(pairs)
        return cls(
            observed + lowest,
            np.bincount(level - lowest, products)[observed],
            pairs[observed],
            np.bincount(closest - lowest, minlength=len(pairs))[observed],
            float(variances),
            int(groups),
        )


class Deviations(NamedTuple):
    r"""
    Deviations of rewards from the mean of their group, and products of pairs of them.

    A pair j, l of a group of n scorable completions with mean m and variance w (ddof 1) has the product

    $$(r_j - m)(r_l - m) \, \frac{n}{n - 1} + \frac{w}{n}$$

    which undoes most of the centring. If c is the covariance of this pair, and no other pair is dependent, its
    expectation is $c \, (n^3 - 2 n^2 + 2 n - 2) / (n^2 (n - 1))$, about (1 - 1 / n) c, less a constant that cancels in
    differences of levels. Differences come out too small, then: by a tenth at n = 8, and by a quarter at n = 3.

    Args:
        deviation (`np.ndarray` of shape `(P, G)`, float64):
            r - m; 0 where unscorable, and in flat groups.
        scorable (`np.ndarray` of shape `(P, G)`, bool):
            Completions with a reward, in groups that are not flat.
        count (`np.ndarray` of shape `(P, 1)`, int64):
            n, at least 2.
        variance (`np.ndarray` of shape `(P, 1)`, float64):
            w; 0 in flat groups.
    """

    deviation: np.ndarray
    scorable: np.ndarray
    count: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, rewards: np.ndarray) -> "Deviations":
        """Those of `(P, G)` rewards, float64, NaN where unscorable."""
        flat = flat_groups(torch.from_numpy(rewards.reshape(-1)), rewards.shape[1]).numpy()
        scorable = ~np.isnan(rewards) & ~flat[:, None]
        count = np.maximum(scorable.sum(axis=1, keepdims=True), 2)  # a group that is not flat has at least two
        rewards = np.where(scorable, rewards, 0.0)
        deviation = np.where(scorable, rewards - rewards.sum(axis=1, keepdims=True) / count, 0.0)
        return cls(deviation, scorable, count, np.square(deviation).sum(axis=1, keepdims=True) / (count - 1))

    def products_with(self, other: np.ndarray) -> np.ndarray:
        """Products of the pairs of each completion with one that deviates by `other`, `(P, 1)`: `(P, G)`, float64."""
        return self.deviation * other * (self.count / (self.count - 1)) + self.variance / self.count


class LevelCovariance:
    r"""
    C(a): the covariance of the rewards of two completions of one prompt whose closest agreement is at level a.

    The mean of the products of pairs ([`Deviations`]) at each level over the last batches is made non-decreasing by
    isotonic regression weighted by the numbers of pairs, shifted to 0 at the lowest observed level, and limited to
    0.98 v, where v is the mean variance of a group. C is a step function: between observed levels it has the value of
    the lower, it is 0 below the lowest, and constant above the highest. Before the first update it is 0: agreement
    explains nothing.

    Note:
        A baseline must not depend on the reward that it is subtracted from, not even through C. So compute a batch's
        baselines with the covariance of earlier batches, and call `update` afterwards.

    Args:
        batches (`int`, *optional*, defaults to `8`):
            Number of last batches to pool. Older ones are dropped because the policy changes.

    Attributes:
        explained (`float`):
            Share of the variance of rewards that agreement explains, 0 to 0.98: the mean of C(a) / v over completions.
            a is the closest agreement of a completion, or of a state, with another completion of its group. 0 means
            that the baseline is RLOO's.

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

    def update(self, statistics: PairStatistics) -> None:
        """Add a batch and drop the oldest. In distributed training pass the sum over processes on every process."""
        self._statistics.append(statistics)
        self._fit()

    def __call__(self, level: np.ndarray) -> np.ndarray:
        """C at each level: float64, shape of `level`."""
        return self._values[np.searchsorted(self._levels, level, side="right")]

    def correlation(self, level: np.ndarray) -> np.ndarray:
        """C / v at each level, 0 to 0.98: all that a linear predictor needs. 0 if v is 0."""
        return self(level) / (self._variance or 1.0)

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
        self._levels, rising = pooled.levels, np.zeros(0)
        if len(pooled.levels):
            means = pooled.products / pooled.pairs
            rising = isotonic_regression(means, weights=pooled.pairs).x
            rising = np.minimum(rising - rising[0], LARGEST_CORRELATION * self._variance)
        self._values = np.append(0.0, rising)
        self.explained = float(pooled.closest @ self.correlation(pooled.levels)) / max(int(pooled.closest.sum()), 1)


def _as_lists(statistics: PairStatistics) -> dict:
    return {name: np.asarray(value).tolist() for name, value in asdict(statistics).items()}


def _from_lists(state: dict) -> PairStatistics:
    empty = asdict(PairStatistics())
    return PairStatistics(**{name: _like(value, state[name]) for name, value in empty.items()})


def _like(empty: np.ndarray | float, saved: list | float) -> np.ndarray | float:
    return np.asarray(saved, empty.dtype) if isinstance(empty, np.ndarray) else saved


class LearnedCovariance:
    """
    A covariance that a run learns from its batches, as `trainer.learned`.

    Args:
        covariance ([`LevelCovariance`]): It, before the first batch.
    """

    def __init__(self, covariance: LevelCovariance):
        self.covariance = covariance

    def update(self, statistics: list[PairStatistics]) -> None:
        """Learn from a batch: the statistics of all ranks."""
        self.covariance.update(sum(statistics, PairStatistics()))

    def state_dict(self) -> dict:
        """What was learned."""
        return self.covariance.state_dict()

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`."""
        self.covariance.load_state_dict(state)


class PrefixCovariance(LevelCovariance):
    """
    C(l): the covariance of the rewards of two completions of one prompt that share exactly l tokens.

    The level of a [`~tempo_trl.credit.prefix_covariance.LevelCovariance`] is the number of shared tokens. Its
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
        [`PairStatistics`] by number of shared tokens, empty if every group is flat.
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
