r"""The error of an estimator, from many batches with equal numbers of generated tokens.

A batch's estimate e of the gradient g of the success rate is that of TRL's "dapo" loss, a mean over the tokens in the
loss, times the length of a completion. If all tokens are in the loss, this is the mean over completions. Both are
pooled by depth and token. Methods differ in the length of their gradient, which a learning rate can compensate, so e
is compared with the true gradient times the best factor, scale * g.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from benchmarks.estimators.estimators import Credit
from benchmarks.estimators.rollouts import Sample
from benchmarks.estimators.task import TokenTree

BLOCKS = 20  # of batches, of which one at a time is left out for a standard error


@dataclass
class Measured:
    """
    Measurements of all batches, one row per batch. NaN for batches without any credit.

    Args:
        estimates (`np.ndarray` of shape `(batches, T, A)`):
            Estimated gradient, pooled by depth and token.
        cosine (`np.ndarray` of shape `(batches,)`):
            Cosine of the estimate to the true gradient.
        tokens (`np.ndarray` of shape `(batches,)`):
            Tokens that were generated.
        value_error (`np.ndarray` of shape `(batches,)`, *optional*):
            Mean squared error of the value of the state before each token in the loss.
        rank (`np.ndarray` of shape `(batches,)`, *optional*):
            Spearman's rank correlation, over the tokens in the loss, of their credit with the true advantage A(s, a).
        decisive (`np.ndarray` of shape `(batches,)`, *optional*):
            Share of the credit |A| of the tokens in the loss that lies on decisive tokens.
    """

    estimates: np.ndarray
    cosine: np.ndarray
    tokens: np.ndarray
    value_error: np.ndarray | None = None
    rank: np.ndarray | None = None
    decisive: np.ndarray | None = None


def measured(tree: TokenTree, sample: Sample, credit: Credit) -> Measured:
    """What the gradient says of every batch of a sample."""
    estimates = gradients(tree, sample, credit)
    return Measured(estimates, cosines(estimates, tree.gradient), sample.tokens)


def measured_tokens(tree: TokenTree, sample: Sample, credit: Credit, decisive: tuple[int, ...]) -> Measured:
    """The same, and what the tokens say."""
    weights = (credit.weights.double()[:, None] * credit.in_loss).numpy()
    errors = np.square(credit.values().double().numpy() - tree.values[sample.nodes[:, :-1]])
    sizes = np.abs(credit.coefficients())
    m = measured(tree, sample, credit)
    m.value_error = _ratio(_by_batch(errors * weights, sample), _by_batch(weights, sample))
    m.rank = _ranks(tree, sample, credit)
    m.decisive = _ratio(_by_batch(sizes[:, list(decisive)], sample), _by_batch(sizes, sample))
    return m


def gradients(tree: TokenTree, sample: Sample, credit: Credit) -> np.ndarray:
    """Estimated gradient of each batch, `(batches, T, A)`."""
    terms = credit.coefficients()[..., None] * tree.score(sample.nodes)
    in_loss = _by_batch(credit.in_loss.double().numpy(), sample)
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
    """Every metric as (figure, standard error); `value_error` as a root of mean squares, in units of reward."""
    of_gradients = {"scale": scale, "bias": bias, "variance": variance, "error": error}
    result = {"cosine": _with_error(_mean, m.cosine)}
    for name, statistic in of_gradients.items():
        result[name] = _with_error(lambda estimates, s=statistic: s(estimates, true), m.estimates)
    if m.rank is not None:
        result |= {name: _with_error(_mean, getattr(m, name)) for name in ("rank", "decisive")}
        result["value_error"] = _with_error(lambda squares: _mean(squares) ** 0.5, m.value_error)
    return result


def gain(ours: Measured, reference: Measured, true: np.ndarray) -> tuple[float, float]:
    """[`error`] of a reference over ours, with its standard error: above 1 where ours is nearer to the truth.

    Where the bias is nothing, it is how many times as many tokens the reference needs to be as near. The error is that
    of the logarithm times the gain: two of them span gain * exp(-2 e / gain) to gain * exp(2 e / gain).
    """

    def logarithm(mine: np.ndarray, other: np.ndarray) -> float:
        return float(np.log(error(other, true) / error(mine, true)))

    value, of_logarithm = _with_error(logarithm, ours.estimates, reference.estimates)
    return float(np.exp(value)), float(np.exp(value)) * of_logarithm


def difference(ours: Measured, reference: Measured) -> tuple[float, float]:
    """Cosine of ours less that of a reference, batch by batch, with its standard error."""
    return _with_error(_mean, ours.cosine - reference.cosine)


def _with_error(statistic: Callable[..., float], *batches: np.ndarray) -> tuple[float, float]:
    return statistic(*batches), standard_error(statistic, *batches)


def _mean(rows: np.ndarray) -> float:
    known = rows[~np.isnan(rows)]
    return float(known.mean()) if len(known) else float("nan")


def _across(estimates: np.ndarray, true: np.ndarray) -> np.ndarray:
    along = (estimates * true).sum(axis=(1, 2)) / np.square(true).sum()
    return estimates - along[:, None, None] * true


def _length(estimates: np.ndarray, true: np.ndarray) -> float:
    return scale(estimates, true) ** 2 * np.square(true).sum()


def _by_batch(rows: np.ndarray, sample: Sample) -> np.ndarray:
    return np.add.reduceat(rows.sum(axis=1), sample.bounds[:-1])


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _ranks(tree: TokenTree, sample: Sample, credit: Credit) -> np.ndarray:
    taken = sample.nodes[:, 1:] - tree.vocabulary * sample.nodes[:, :-1] - 1
    true, ours, inside = (
        tree.advantages[sample.nodes[:, :-1], taken],
        credit.advantages.numpy(),
        credit.in_loss.numpy(),
    )
    rows = [slice(*bounds) for bounds in zip(sample.bounds[:-1], sample.bounds[1:], strict=True)]
    return np.array([spearman(ours[r][inside[r]], true[r][inside[r]]) for r in rows])


def spearman(ours: np.ndarray, true: np.ndarray) -> float:
    """Rank correlation of two lists, ties at their mean rank; NaN if one of them is all alike.

    Equal credit that differs by a rounding error is a tie.
    """
    ours, true = np.round(ours, 6), np.round(true, 6)
    if min(len(np.unique(ours)), len(np.unique(true))) < 2:
        return float("nan")
    return float(spearmanr(ours, true).statistic)
