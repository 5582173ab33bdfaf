"""Every credit of the package on a sample, called as the trainers call it, in the units of the reward.

Nothing is divided by a standard deviation (`scale_rewards="none"`, TreeRPO's `scale="none"`, PPO without whitening),
so that credits are compared and not scales. Otherwise the trainers' defaults are used: leaves of grown trees have
weights `by_branch`, forced first tokens are kept although they are not samples of the policy, TreeRPO counts a shared
token once, and the adaptive baseline learns from earlier batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.estimators.rollouts import Rollout, Sample
from benchmarks.estimators.task import TokenTree
from tempo_trl.credit.advantages import credit_tokens, outcome_advantages, prefix_values
from tempo_trl.credit.gae import at_last_token, gae
from tempo_trl.credit.prefix_baseline import baseline_tokens, prefix_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.siblings import count_once, segment_values, sibling_advantages
from tempo_trl.credit.traces import trace_weights, traced_reference
from tempo_trl.rollout.forced_tokens import treat_forced_tokens
from tempo_trl.rollout.tree import repeated_rows


@dataclass
class Credit:
    """
    The credit of an estimator for every token.

    Args:
        advantages (`torch.Tensor` of shape `(B, T)`):
            Factor of the token's score in the policy gradient, without the weight of its completion.
        values (`Callable[[], torch.Tensor]`):
            Returns the estimated value of the state before each token, `(B, T)`, which may be expensive.
        weights (`torch.Tensor` of shape `(B,)`, *optional*):
            Weight of each completion in the gradient, 1 on average. Defaults to 1.
        in_loss (`torch.Tensor` of shape `(B, T)`, bool, *optional*):
            Whether the token is in the loss. Defaults to all tokens.
    """

    advantages: torch.Tensor
    values: Callable[[], torch.Tensor]
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
    credit: Callable[[Sample, TokenTree], Credit]


def tempo(td_coef: float, forced_tokens: str = "keep") -> Callable[[Sample, TokenTree], Credit]:
    """TEMPO with a coefficient of the TD error: `credit_tokens`. 0 is GRPO."""

    def credit(sample: Sample, _: TokenTree) -> Credit:
        width, weights = sample.ids.shape[1], sample.leaf_weights
        advantages, _ = credit_tokens(sample.prefixes, outcome(sample), width, td_coef, weights)

        def values() -> torch.Tensor:
            group = sample.ids, sample.lengths, sample.rewards, sample.num_generations
            values = prefix_values(*group, weights=weights)[:, :-1]
            return values if td_coef else values[:, :1].expand(-1, width)  # GRPO knows the mean of the group only

        if weights is not None:
            advantages = advantages / (sample.num_generations * weights.float())[:, None]  # [`Credit`] has it apart
        return _forced(sample, Credit(advantages, values, _factor(sample, weights)), forced_tokens)

    return credit


def prefix_baseline(shrinkage: float) -> Callable[[Sample, TokenTree], Credit]:
    """The prefix baseline with a fixed shrinkage: `baseline_tokens`. Infinity is RLOO."""
    return lambda sample, _: _over_baseline(sample, shrinkage)


def adaptive(batches: int = 8) -> Callable[[Sample, TokenTree], Credit]:
    """The prefix baseline with learned shrinkage: each batch by the covariance of so many batches before it."""

    def credit(sample: Sample, _: TokenTree) -> Credit:
        parts = [_over_baseline(batch, covariance) for batch, covariance in learning(sample, batches)]
        advantages, weights = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("advantages", "weights")
        )
        return Credit(advantages, lambda: values(sample), weights)

    def values(sample: Sample) -> torch.Tensor:
        return torch.cat([_over_baseline(batch, learned).values() for batch, learned in learning(sample, batches)])

    return credit


def grpo_lambda(
    decay: float, update: str = "trace", style: str = "recent", min_advantage: float = -float("inf")
) -> Callable[[Sample, TokenTree], Credit]:
    """GRPO-lambda on policy: what multiplies a token's score in the gradient of the traced ratio, or its weight.

    The paper's clamp at -0.1 (`min_advantage`) is of advantages over their standard deviation, here of plain ones.
    """

    def credit(sample: Sample, tree: TokenTree) -> Credit:
        grpo = tempo(0.0)(sample, tree)
        advantages, mask = grpo.advantages.clamp(min=min_advantage), torch.ones_like(grpo.advantages)
        if update == "weight":
            return Credit(advantages * trace_weights(mask, decay, style), grpo.values)
        logps = torch.zeros_like(advantages, requires_grad=True)
        ratio = (logps - traced_reference(logps, logps.detach(), mask, decay, style)).exp()
        (traced,) = torch.autograd.grad((ratio * advantages).sum(), logps)
        return Credit(traced, grpo.values)

    return credit


def treerpo(average: str = "children", count_shared_tokens: str = "once") -> Callable[[Sample, TokenTree], Credit]:
    """Both methods called TreeRPO: `sibling_advantages`, of means of children (fixed trees) or leaves (entropy)."""

    def credit(sample: Sample, _: TokenTree) -> Credit:
        grown = sample.branches
        tree = grown.segment, grown.parent, grown.leaf
        advantages = sibling_advantages(*tree, sample.rewards, average=average, scale="none")
        values = segment_values(grown.parent, grown.leaf, sample.rewards, average)
        once = count_once(grown.segment, torch.ones_like(grown.segment)) if count_shared_tokens == "once" else None
        return Credit(advantages, lambda: values[grown.parent[grown.segment]], in_loss=once)

    return credit


def ppo(lam: float) -> Callable[[Sample, TokenTree], Credit]:
    """PPO with the true values in the critic's place: `gae` with gamma 1."""
    return lambda sample, tree: _gae(sample, torch.from_numpy(tree.values[sample.nodes[:, :-1]]), lam)


def rerolled_values(sample: Sample, _: TokenTree) -> Credit:
    """VinePPO: TD errors over the values of fresh re-rollouts, `gae` with lambda 0."""
    return _gae(sample, sample.rerolled, 0.0)


def _gae(sample: Sample, values: torch.Tensor, lam: float) -> Credit:
    mask = torch.ones_like(values)
    return Credit(gae(at_last_token(sample.rewards, mask), values, mask, 1.0, lam)[0], lambda: values)


def outcome(sample: Sample) -> torch.Tensor:
    """Outcome advantages of the completions, not scaled: `(B,)`."""
    return outcome_advantages(sample.rewards, sample.num_generations, "none")


def _over_baseline(sample: Sample, shrinkage: float | PrefixCovariance) -> Credit:
    width, weights, size = sample.ids.shape[1], sample.leaf_weights, sample.num_generations
    segments = None if sample.trees is None else sample.branches.segment
    advantages = baseline_tokens(sample.prefixes, outcome(sample), width, shrinkage, segments)

    def values() -> torch.Tensor:
        return prefix_baselines(sample.ids, sample.lengths, sample.rewards, size, shrinkage, segments)

    return Credit(advantages, values, _factor(sample, weights))


def _factor(sample: Sample, weights: torch.Tensor | None) -> torch.Tensor | None:
    return None if weights is None else sample.num_generations * weights


def learning(sample: Sample, batches: int) -> Iterator[tuple[Sample, PrefixCovariance]]:
    """Each batch with the covariance of those before it, to be used before the next is asked for."""
    covariance = PrefixCovariance(batches)
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
    return Credit(advantages, credit.values, credit.weights, in_loss)
