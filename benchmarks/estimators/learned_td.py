r"""An experiment: TD errors of the kernel baseline's values, with a coefficient that earlier batches justify.

With delta(t) = b(t + 1) - b(t), and the reward after the last token, the advantages are those of GAE:

$$A(t) = \delta(t) + (1 - c) A(t + 1)$$

c = 0 is the kernel baseline itself, without bias; c = 1 is the TD error alone. A batch takes the coefficient for which
the gradients of earlier batches pointed best along the mean of the others' unbiased gradients, if it was better than 0
by two standard errors. Before that it is 0. A trainer would need these gradients too, so this is no method yet.
"""

import numpy as np
import torch

from benchmarks.estimators.estimators import Credit, kernel, outcome
from benchmarks.estimators.metrics import gradients
from benchmarks.estimators.rollouts import Sample
from benchmarks.estimators.task import TokenTree

COEFFICIENTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
POOLED = 32  # batches that are remembered


def traced(coefficient: float):
    """The credit with a fixed coefficient."""

    def credit(sample: Sample, tree: TokenTree) -> Credit:
        advantages = over_values(kernel(sample, tree).advantages, coefficient)
        return Credit(advantages, lambda: outcome(sample)[:, None] - advantages)

    return credit


def learned(sample: Sample, tree: TokenTree) -> Credit:
    """The credit with the coefficient that earlier batches justify."""
    over_baseline = kernel(sample, tree).advantages
    by_coefficient = [over_values(over_baseline, c) for c in COEFFICIENTS]
    estimates = np.stack([_estimates(sample, tree, one) for one in by_coefficient])
    rows = np.searchsorted(sample.bounds[1:], np.arange(len(over_baseline)), side="right")  # the batch of each row
    chosen = [justified(estimates[:, max(0, batch - POOLED) : batch]) for batch in range(len(sample.tokens))]
    advantages = torch.stack(by_coefficient)[torch.tensor(chosen)[rows], torch.arange(len(rows))]
    return Credit(advantages, lambda: outcome(sample)[:, None] - advantages)


def _estimates(sample: Sample, tree: TokenTree, advantages: torch.Tensor) -> np.ndarray:
    """Gradient of each batch, `(batches, entries)`."""
    return gradients(tree, sample, Credit(advantages, lambda: advantages)).reshape(len(sample.tokens), -1)


def over_values(over_baseline: torch.Tensor, coefficient: float) -> torch.Tensor:
    """GAE of lambda `1 - coefficient` over the values b = r - `over_baseline`, `(B, T)`; all rows have T tokens."""
    following = torch.nn.functional.pad(over_baseline[:, 1:], (0, 1))
    errors, advantages = over_baseline - following, torch.zeros_like(over_baseline)
    later = torch.zeros(len(over_baseline))
    for t in reversed(range(over_baseline.shape[1])):
        later = errors[:, t] + (1 - coefficient) * later
        advantages[:, t] = later
    return advantages


def justified(estimates: np.ndarray) -> int:
    """Index of the coefficient, from estimates of earlier batches, `(coefficients, batches, entries)`."""
    batches = estimates.shape[1]
    if batches < 3:
        return 0
    others = (estimates[0].sum(axis=0) - estimates[0]) / (batches - 1)  # unbiased, and independent of the batch
    lengths = np.maximum(np.linalg.norm(estimates, axis=2), 1e-12)
    along = (estimates * others).sum(axis=2) / lengths
    lead = along - along[0]
    errors = lead.std(axis=1, ddof=1) / np.sqrt(batches)
    best = int(lead.mean(axis=1).argmax())
    return best if lead[best].mean() > 2 * errors[best] else 0
