"""Credit of the package on a sample, called as the trainers call it, in the units of the reward.

Nothing is divided by a standard deviation (`scale_rewards="none"`, TreeRPO's `scale="none"`), so that credits are
compared and not scales. Otherwise the trainers' defaults are used: leaves of grown trees have weights `by_branch`,
forced first tokens are kept although they are not samples of the policy, TreeRPO counts a shared token once, and the
adaptive baseline learns from earlier batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.estimators.rollouts import Rollout, Sample
from tempo_trl.credit.advantages import credit_tokens, outcome_advantages
from tempo_trl.credit.prefix_baseline import baseline_tokens
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.siblings import count_once, sibling_advantages
from tempo_trl.rollout.forced_tokens import treat_forced_tokens
from tempo_trl.rollout.tree import repeated_rows

POOLED = 8  # batches from which the adaptive baseline learns, the last ones


@dataclass
class Credit:
    """
    The credit of an estimator for every token.

    Args:
        advantages (`torch.Tensor` of shape `(B, T)`):
            Factor of the token's score in the policy gradient, without the weight of its completion.
        weights (`torch.Tensor` of shape `(B,)`, *optional*):
            Weight of each completion in the gradient, 1 on average. Defaults to 1.
        in_loss (`torch.Tensor` of shape `(B, T)`, bool, *optional*):
            Whether the token is in the loss. Defaults to all tokens.
    """

    advantages: torch.Tensor
    weights: torch.Tensor | None = None
    in_loss: torch.Tensor | None = None

    def __post_init__(self):
        if self.weights is None:
            self.weights = torch.ones(len(self.advantages))
        if self.in_loss is None:
            self.in_loss = torch.ones_like(self.advantages, dtype=torch.bool)

    def coefficients(self) -> np.ndarray:
        """Factor of each token's score in the sum that is the gradient, `(B, T)`, float64."""
        return (self.advantages.double() * self.weights.double()[:, None] * self.in_loss).numpy()


class Estimator(NamedTuple):
    """A way to sample completions, and a credit for them."""

    rollout: Rollout
    credit: Callable[[Sample], Credit]


def tempo(td_coef: float, forced_tokens: str = "keep") -> Callable[[Sample], Credit]:
    """TEMPO with a coefficient of the TD error: `credit_tokens`. 0 is GRPO."""

    def credit(sample: Sample) -> Credit:
        width, weights = sample.ids.shape[1], sample.leaf_weights
        advantages, _ = credit_tokens(sample.prefixes, outcome(sample), width, td_coef, weights)
        if weights is not None:
            advantages = advantages / (sample.num_generations * weights.float())[:, None]  # [`Credit`] has it apart
        return _forced(sample, Credit(advantages, _factor(sample)), forced_tokens)

    return credit


def prefix_baseline(shrinkage: float) -> Callable[[Sample], Credit]:
    """The prefix baseline with a fixed shrinkage: `baseline_tokens`. Infinity is RLOO."""
    return lambda sample: _over_baseline(sample, shrinkage)


def adaptive() -> Callable[[Sample], Credit]:
    """The prefix baseline with learned shrinkage: each batch by the covariance of the [`POOLED`] before it."""

    def credit(sample: Sample) -> Credit:
        parts = [_over_baseline(batch, covariance) for batch, covariance in learning(sample)]
        advantages, weights = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("advantages", "weights")
        )
        return Credit(advantages, weights)

    return credit


def treerpo(average: str = "children", count_shared_tokens: str = "once") -> Callable[[Sample], Credit]:
    """Both methods called TreeRPO: `sibling_advantages`, of means of children (fixed trees) or leaves (entropy)."""

    def credit(sample: Sample) -> Credit:
        grown = sample.branches
        tree = grown.segment, grown.parent, grown.leaf
        advantages = sibling_advantages(*tree, sample.rewards, average=average, scale="none")
        once = count_once(grown.segment, torch.ones_like(grown.segment)) if count_shared_tokens == "once" else None
        return Credit(advantages, in_loss=once)

    return credit


METHODS = {"GRPO": tempo(0.0), "TEMPO": tempo(1.0), "adaptive": adaptive()}  # that most questions compare


def outcome(sample: Sample) -> torch.Tensor:
    """Outcome advantages of the completions, not scaled: `(B,)`."""
    return outcome_advantages(sample.rewards, sample.num_generations, "none")


def _over_baseline(sample: Sample, shrinkage: float | PrefixCovariance) -> Credit:
    segments = None if sample.trees is None else sample.branches.segment
    advantages = baseline_tokens(sample.prefixes, outcome(sample), sample.ids.shape[1], shrinkage, segments)
    return Credit(advantages, _factor(sample))


def _factor(sample: Sample) -> torch.Tensor | None:
    """Weights of the completions, 1 on average."""
    return None if sample.leaf_weights is None else sample.num_generations * sample.leaf_weights


def learning(sample: Sample) -> Iterator[tuple[Sample, PrefixCovariance]]:
    """Each batch with the covariance of those before it, to be used before the next is asked for."""
    covariance = PrefixCovariance(POOLED)
    for k in range(len(sample.tokens)):
        batch = sample.batch(k)
        yield batch, covariance
        covariance.update(pair_statistics(batch.prefixes, _each_leaf_once(batch)))


def _each_leaf_once(sample: Sample) -> torch.Tensor:
    """Outcomes for the covariance: a completion that is handed over twice makes no pair."""
    outcomes = outcome(sample)
    return outcomes if sample.trees is None else outcomes.masked_fill(repeated_rows(sample.trees), torch.nan)


def _forced(sample: Sample, credit: Credit, forced_tokens: str) -> Credit:
    """What the trainers do with forced first tokens."""
    if sample.trees is None or forced_tokens == "keep":
        return credit
    advantages, in_loss = treat_forced_tokens(credit.advantages, sample.branches.forced_ratio, forced_tokens)
    return Credit(advantages, credit.weights, in_loss)
