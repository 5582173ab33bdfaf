r"""The error of an estimator, from many batches with equal numbers of generated tokens.

A batch's estimate e of the gradient g of the success rate is that of TRL's "dapo" loss, a mean over the tokens in the
loss, times the length of a completion. If all tokens are in the loss, this is the mean over completions. Both are
pooled by depth and token. Methods differ in the length of their gradient, which a learning rate can compensate, so e
is compared with the true gradient times the best factor, scale * g.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.estimators.estimators import Credit
from benchmarks.estimators.rollouts import Sample
from benchmarks.estimators.task import TokenTree

BLOCKS = 20  # of batches, of which one at a time is left out for a standard error


@dataclass
class Measured:
    """
    Measurements of all batches, one row per batch.

    Args:
        estimates (`np.ndarray` of shape `(batches, T, A)`):
            Estimated gradient, pooled by depth and token.
        cosine (`np.ndarray` of shape `(batches,)`):
            Cosine of the estimate to the true gradient.
        tokens (`np.ndarray` of shape `(batches,)`):
            Tokens that were generated.
    """

    estimates: np.ndarray
    cosine: np.ndarray
    tokens: np.ndarray


def gradients(tree: TokenTree, sample: Sample, credit: Credit) -> np.ndarray:
    """Estimated gradient of each batch, `(batches, T, A)`."""
    terms = credit.coefficients()[..., None] * tree.score(sample.nodes)
    in_loss = np.add.reduceat(credit.in_loss.sum(dim=1).numpy(), sample.bounds[:-1])
    return np.add.reduceat(terms, sample.bounds[:-1]) * tree.depth / in_loss[:, None, None]


def cosines(estimates: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Cosine of each estimate to the true gradient, `(batches,)`; 0 for an estimate of 0."""
    products = (estimates * true).sum(axis=(1, 2))
    lengths = np.linalg.norm(estimates, axis=(1, 2)) * np.linalg.norm(true)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)


def scale(estimates: np.ndarray, true: np.ndarray) -> float:
    r"""Of the best-scaled truth: $\alpha = \langle \bar e, g \rangle / \langle g, g \rangle$, 1 for the gradient."""
    return float((estimates.mean(axis=0) * true).sum() / np.square(true).sum())


def bias(estimates: np.ndarray, true: np.ndarray) -> float:
    r"""
    Squared bias, as a share of the squared length of the best-scaled truth.

    $$\frac{\|E[e] - \alpha g\|^2}{\alpha^2 \|g\|^2}, \quad \|E[e] - \alpha g\|^2 = \|\bar e - \alpha g\|^2 -
    \frac{1}{n} \mathrm{tr} \, \mathrm{Cov}(e_\perp)$$

    with e_perp the part of e across g. The second term takes off what n batches of an unbiased estimate would show, so
    the figure is right on average and below 0 half the time where there is no bias.
    """
    across = _across(estimates, true)
    noise = np.square(across - across.mean(axis=0)).sum() / (len(across) - 1)
    return float((np.square(across.mean(axis=0)).sum() - noise / len(across)) / _length(estimates, true))


def variance(estimates: np.ndarray, true: np.ndarray) -> float:
    r"""Variance of a batch's estimate, $\mathrm{tr} \, \mathrm{Cov}(e) / (\alpha^2 \|g\|^2)$."""
    centred = estimates - estimates.mean(axis=0)
    return float(np.square(centred).sum() / (len(centred) - 1) / _length(estimates, true))


def error(estimates: np.ndarray, true: np.ndarray) -> float:
    r"""Squared bias and variance together: $E\|e - \alpha g\|^2 / (\alpha^2 \|g\|^2)$."""
    return bias(estimates, true) + variance(estimates, true)


def standard_error(statistic: Callable[..., float], *batches: np.ndarray) -> float:
    """Of a statistic of batches, by leaving out one of up to 20 blocks of them at a time (the jackknife)."""
    count = len(batches[0])
    blocks = np.array_split(np.arange(count), min(BLOCKS, count))
    without = [statistic(*(np.delete(rows, block, axis=0) for rows in batches)) for block in blocks]
    return float(np.sqrt((len(blocks) - 1) * np.var(without)))


def summary(m: Measured, true: np.ndarray) -> dict[str, tuple[float, float]]:
    """Every metric as (figure, standard error)."""
    of_gradients = (scale, bias, variance, error)
    return {"cosine": with_error(np.mean, m.cosine)} | {
        statistic.__name__: with_error(partial(statistic, true=true), m.estimates) for statistic in of_gradients
    }


def gain(ours: Measured, reference: Measured, true: np.ndarray) -> tuple[float, float]:
    """[`error`] of a reference over ours, with its standard error: above 1 where ours is nearer to the truth.

    Where the bias is nothing, it is how many times as many tokens the reference needs to be as near. The error is that
    of the logarithm times the gain: two of them span gain * exp(-2 e / gain) to gain * exp(2 e / gain).
    """

    def logarithm(mine: np.ndarray, other: np.ndarray) -> float:
        return float(np.log(error(other, true) / error(mine, true)))

    value, of_logarithm = with_error(logarithm, ours.estimates, reference.estimates)
    return float(np.exp(value)), float(np.exp(value)) * of_logarithm


def difference(ours: Measured, reference: Measured) -> tuple[float, float]:
    """Cosine of ours less that of a reference, batch by batch, with its standard error."""
    return with_error(np.mean, ours.cosine - reference.cosine)


def with_error(statistic: Callable[..., float], *batches: np.ndarray) -> tuple[float, float]:
    """A statistic of batches, and its [`standard_error`]."""
    return statistic(*batches), standard_error(statistic, *batches)


def shown(pair: tuple[float, float], digits: int = 2) -> str:
    """Figure and standard error."""
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


def _across(estimates: np.ndarray, true: np.ndarray) -> np.ndarray:
    along = (estimates * true).sum(axis=(1, 2)) / np.square(true).sum()
    return estimates - along[:, None, None] * true


def _length(estimates: np.ndarray, true: np.ndarray) -> float:
    return scale(estimates, true) ** 2 * np.square(true).sum()
