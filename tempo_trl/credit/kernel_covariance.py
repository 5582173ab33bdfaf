"""How similar and equal prefixes predict rewards: the covariance that the kernel baseline learns.

The estimator is ours, not from a paper. Like [`PrefixCovariance`] it is updated batch by batch, with statistics that
can be summed over processes.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy.optimize import isotonic_regression, nnls

from tempo_trl.credit.level_covariance import LARGEST_CORRELATION, PooledBatches
from tempo_trl.credit.prefix_covariance import pair_products

POWERS = (1, 2, 4, 8)  # of similarity, in the kernel
FACTORS = 2 + len(POWERS)  # of a depth: the mean, shared tokens, and each power
DEPTHS = 24  # ranges of depth with factors of their own: state t is in range floor(log2(t))
SPREAD = 0.5  # standard deviation of the prior of a weight or factor, as a share of the rewards' variance
ROUNDS = 30  # between the steps of shared tokens and the weights of similarity, until neither moves


@dataclass(frozen=True, eq=False)
class KernelStatistics:
    """
    Sums over the pairs and states of a batch. `a + b` are the sums over both batches.

    Args:
        shared (`np.ndarray` of shape `(L,)`, int64):
            The observed numbers of shared tokens, ascending.
        pairs (`np.ndarray` of shape `(L, 2 + P)`, float64):
            Over the pairs that share so many tokens: their number, the sum of their products of rewards
            ([`~tempo_trl.credit.level_covariance.Deviations`]), and of each power of their similarity.
        gram (`np.ndarray` of shape `(P, P)`, float64):
            Sum over pairs of the products of two powers of similarity.
        moments (`np.ndarray` of shape `(P,)`, float64):
            Sum over pairs of a power of similarity times the product of rewards.
        variances (`float`), groups (`int`):
            As in [`~tempo_trl.credit.level_covariance.PairStatistics`].
        state_gram (`np.ndarray` of shape `(DEPTHS, FACTORS, FACTORS)`, float64):
            Sum over states of the products of two predictions, by range of depth.
        state_moments (`np.ndarray` of shape `(DEPTHS, FACTORS)`, float64):
            Sum over states of a prediction times what it should predict: the reward minus the others' mean.
    """

    shared: np.ndarray
    pairs: np.ndarray
    gram: np.ndarray
    moments: np.ndarray
    variances: float
    groups: int
    state_gram: np.ndarray
    state_moments: np.ndarray

    @classmethod
    def empty(cls) -> "KernelStatistics":
        """The sums over no pairs and no states."""
        powers = len(POWERS)
        pairs = np.zeros(0, dtype=np.int64), np.zeros((0, 2 + powers)), np.zeros((powers, powers)), np.zeros(powers)
        return cls(*pairs, 0.0, 0, np.zeros((DEPTHS, FACTORS, FACTORS)), np.zeros((DEPTHS, FACTORS)))

    def __add__(self, other: "KernelStatistics") -> "KernelStatistics":
        shared, index = np.unique(np.concatenate([self.shared, other.shared]), return_inverse=True)
        pairs = np.zeros((len(shared), 2 + len(POWERS)))
        np.add.at(pairs, index, np.concatenate([self.pairs, other.pairs]))
        rest = [getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[2:]]
        return KernelStatistics(shared, pairs, *rest)


def kernel_statistics(
    shared: np.ndarray,
    outcome: torch.Tensor,
    similar: np.ndarray,
    state_gram: np.ndarray,
    state_moments: np.ndarray,
) -> KernelStatistics:
    """
    Statistics of a batch for [`KernelCovariance`], over the pairs of scorable completions of groups that are not flat.

    Args:
        shared (`np.ndarray` of shape `(P, G, G)`):
            Number of tokens that completions share ([`~tempo_trl.credit.prefix_covariance.pairwise_lcp`]).
        outcome (`torch.Tensor` of shape `(R,)`):
            Rewards or outcome advantages, always in the same unit; NaN where unscorable.
        similar (`np.ndarray` of shape `(P, G, G)`):
            Similarities of whole completions ([`~tempo_trl.credit.similarity.prefix_similarities`]).
        state_gram, state_moments:
            As in [`KernelStatistics`].
    """
    given = pair_products(outcome, shared.shape[1])
    once = given.known & np.triu(np.ones(similar.shape[1:], dtype=bool))
    powers, products = similar[once][:, None].astype(float) ** POWERS, given.products[once]
    lengths, index = np.unique(shared[once], return_inverse=True)
    pairs = np.zeros((len(lengths), 2 + len(POWERS)))
    np.add.at(pairs, index, np.column_stack([np.ones(len(powers)), products, powers]))
    return KernelStatistics(
        lengths,
        pairs,
        powers.T @ powers,
        powers.T @ products,
        float(given.variances.sum()),
        int(given.known.any(axis=(1, 2)).sum()),
        state_gram,
        state_moments,
    )


class KernelCovariance(PooledBatches):
    r"""
    The covariance of the rewards of two completions of one prompt that share l tokens and have similarity s.

    $$k(l, s) = C(l) + v \sum_p a_p s^p, \quad a_p \ge 0$$

    C is non-decreasing in l, and p is 1, 2, 4 and 8. Both parts are fitted to the products of the rewards of pairs of
    earlier batches, in turns: C by isotonic regression, a by non-negative least squares. Steps in l and powers of s
    are positive semi-definite kernels, and so is k. If all a are 0, C is [`PrefixCovariance`]'s.

    The value of a state after t tokens is predicted from three parts
    ([`~tempo_trl.credit.kernel_baseline.kernel_baseline_tokens`]): what equal prefixes predict alone, as in the
    adaptive prefix baseline, times a factor $f_0(t)$; what similarity predicts, where $\sum_p f_p(t) s_j(t)^p$ stands
    for the correlation of the state with completion j; and how far similarity moves the mean, times $f_m(t)$. All
    factors are at least 0. They are fitted to how well each part predicted the rewards of earlier batches, so a part
    that did not help fades out at that depth. Before the first update all covariances are 0: the baseline is RLOO's.

    Weights and factors have a prior, so that few data change little: a and $f_m$ have their means at 0, $f_0$ at 1
    and $f_p$ at $a_p$, with standard deviation 0.5.

    Note:
        A baseline must not depend on the reward that it is subtracted from, not even through its covariance. So
        compute a batch's baselines with what earlier batches taught, and call `update` afterwards.

    Args:
        batches (`int`, *optional*, defaults to `8`):
            Number of last batches to pool. Older ones are dropped because the policy changes.

    Raises:
        ValueError: if `batches` is less than 1.
    """

    @property
    def weights(self) -> np.ndarray:
        """a, the weights of the powers of similarity, `(P,)`: the largest correlation that each can stand for."""
        return self._weights

    def factors(self, depth: np.ndarray) -> np.ndarray:
        """f at each number of tokens: `(..., FACTORS)`: of the mean, of shared tokens, of each power."""
        return self._factors[depth_range(depth)]

    def correlation(self, shared: np.ndarray) -> np.ndarray:
        """[`PrefixCovariance`]'s C / v at each number of shared tokens, 0 to 0.98: of equal prefixes alone."""
        return self._alone[np.searchsorted(self._lengths, shared, side="right")]

    def kernel(self, shared: np.ndarray, similar: np.ndarray) -> np.ndarray:
        """k / v of pairs of completions, 0 to 0.98: float64, shape of both arguments."""
        level = self._levels[np.searchsorted(self._lengths, shared, side="right")]
        return level + sum(a * similar.astype(float) ** p for a, p in self._terms() if a)

    def _terms(self) -> zip:
        return zip(self._weights, POWERS, strict=True)

    def state_dict(self) -> dict:
        """The pooled statistics, as tensors and numbers."""
        return {"statistics": [_as_tensors(statistics) for statistics in self._statistics]}

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`. If it has more batches than this estimator pools, the last ones are kept."""
        self._statistics.clear()
        self._statistics.extend(_from_tensors(statistics) for statistics in state["statistics"])
        self._fit()

    def _fit(self) -> None:
        pooled = sum(self._statistics, KernelStatistics.empty())
        self._variance = pooled.variances / max(pooled.groups, 1)
        unit = self._variance or 1.0
        alone, rising, weights = np.zeros(0), np.zeros(0), np.zeros(len(POWERS))
        if len(pooled.shared):
            alone = isotonic_regression(pooled.pairs[:, 1] / pooled.pairs[:, 0], weights=pooled.pairs[:, 0]).x / unit
            rising, weights = _fitted_kernel(pooled, unit)
            alone = np.minimum(alone - alone[0], LARGEST_CORRELATION)
        self._alone = np.append(0.0, alone)
        self._weights = weights * min(1.0, LARGEST_CORRELATION / max(weights.sum(), LARGEST_CORRELATION))
        most = LARGEST_CORRELATION - self._weights.sum()
        self._lengths, self._levels = pooled.shared, np.append(0.0, np.minimum(rising, most))
        self._factors = _fitted_factors(pooled, unit, np.concatenate([[0.0, 1.0], self._weights]))


def depth_range(depth: np.ndarray) -> np.ndarray:
    """The range of depth that each number of tokens is in."""
    return np.minimum(np.log2(np.maximum(depth, 1)).astype(int), DEPTHS - 1)


def _fitted_kernel(pooled: KernelStatistics, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """C at the observed lengths, above its value at the shortest, and a; both divided by the variance `unit`."""
    number, products, powers = pooled.pairs[:, 0], pooled.pairs[:, 1] / unit, pooled.pairs[:, 2:]
    mean = powers.sum(axis=0) / number.sum()
    gram = pooled.gram - np.outer(mean, mean) * number.sum()  # of the deviations: C has a free level
    gram[np.diag_indices(len(gram))] += SPREAD**-2
    weights = np.zeros(len(POWERS))
    for _ in range(ROUNDS):
        rising = isotonic_regression((products - powers @ weights) / number, weights=number).x
        left = products.sum() - number @ rising
        weights = non_negative(gram, pooled.moments / unit - powers.T @ rising - mean * left)
    return rising - rising[0], weights


def _fitted_factors(pooled: KernelStatistics, unit: float, prior: np.ndarray) -> np.ndarray:
    """The factors by range of depth, `(DEPTHS, FACTORS)`; the prior where nothing was observed."""
    factors, precision = np.tile(prior, (DEPTHS, 1)), unit * SPREAD**-2 * np.eye(FACTORS)
    for depth in np.flatnonzero(pooled.state_gram.any(axis=(1, 2))):
        moments = pooled.state_moments[depth] + precision @ prior
        factors[depth] = non_negative(pooled.state_gram[depth] + precision, moments)
    return factors


def non_negative(gram: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The x >= 0 that minimises x^T gram x - 2 moments^T x, for a positive definite gram."""
    root = np.linalg.cholesky(gram)
    return nnls(root.T, np.linalg.solve(root, moments))[0]


def _as_tensors(statistics: KernelStatistics) -> dict:
    values = {f.name: getattr(statistics, f.name) for f in fields(statistics)}
    return {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in values.items()}


def _from_tensors(state: dict) -> KernelStatistics:
    return KernelStatistics(**{name: v.numpy() if torch.is_tensor(v) else v for name, v in state.items()})
