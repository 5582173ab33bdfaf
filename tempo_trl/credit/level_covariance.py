"""The covariance of rewards of completions that agree at a level, learned batch by batch from products of pairs.

A level says how closely two completions agree: the number of tokens that they share
([`~tempo_trl.credit.prefix_covariance.PrefixCovariance`]). The estimator is ours, not from a paper. Its statistics can
be summed over processes.
"""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tempo_trl.credit.advantages import flat_groups

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
