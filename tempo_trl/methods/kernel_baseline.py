"""The kernel baseline: the outcome minus a baseline from completions with equal or similar prefixes."""

from dataclasses import dataclass, field

import torch

from tempo_trl.credit.kernel_baseline import Similarities, kernel_baseline_tokens
from tempo_trl.credit.kernel_covariance import KernelCovariance, KernelStatistics
from tempo_trl.credit.similarity import Sketch, prefix_similarities
from tempo_trl.methods.prefix_baseline import value_error
from tempo_trl.methods.prefix_tree_method import (
    PrefixTreeConfig,
    PrefixTreeTrainer,
    completion_weights,
    whole_outcome,
    with_forced_tokens,
)
from tempo_trl.rollout.tree import branches, repeated_rows
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.token_credit import TokenCreditTrainer


class KernelBaselineCredit:
    r"""
    Credit over the kernel baseline (ours, no paper's): $A_{i,t} = g_i - b_{i,t}$.

    b predicts the value of the state before the token from the other completions of the group
    ([`~tempo_trl.credit.kernel_baseline.kernel_baseline_tokens`]): those that share its prefix, and those that wrote
    something similar so far. How much either counts is learned from earlier batches.

    Args:
        sketch ([`~tempo_trl.credit.similarity.Sketch`]):
            How prefixes are compared.
        leaf_weights, forced_tokens (`str`):
            As in [`KernelBaselineConfig`], for completions that were grown as trees.
    """

    def __init__(self, sketch: Sketch, leaf_weights: str = "by_branch", forced_tokens: str = "keep"):
        self.sketch = sketch
        self.covariance = KernelCovariance()
        self.leaf_weights, self.forced_tokens = leaf_weights, forced_tokens

    def __call__(self, batch: Batch) -> Credit:
        weights = completion_weights(batch, self.leaf_weights)
        advantages, statistics = self._advantages(batch)
        metrics = value_error(batch, advantages, batch.outcome)
        if weights is not None:
            advantages = advantages * (batch.num_generations * weights.float())[:, None]
        outcome = whole_outcome(batch, weights)
        credit = Credit(advantages, metrics=metrics, weights=weights, outcome=outcome, statistics=statistics)
        return with_forced_tokens(credit, batch, self.forced_tokens)

    def _advantages(self, batch: Batch) -> tuple[torch.Tensor, KernelStatistics]:
        ids, size, width = batch.completion_ids, batch.num_generations, batch.completion_ids.shape[1]
        similar = prefix_similarities(ids, batch.lengths, size, self.sketch, batch.prompts)
        segments, learn_from = None, batch.owned
        if batch.grown is not None:
            segments = branches(batch.grown, width).segment
            learn_from = learn_from & ~repeated_rows(batch.grown)
        similarities = Similarities(self.sketch.depths(width), similar.numpy())
        return kernel_baseline_tokens(
            batch.tree, batch.outcome, width, similarities, self.covariance, segments, learn_from
        )

    def update(self, statistics: list[KernelStatistics]) -> None:
        """Learn from the batch of all ranks."""
        self.covariance.update(sum(statistics, KernelStatistics.empty()))

    def state_dict(self) -> dict:
        """What was learned."""
        return self.covariance.state_dict()

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`."""
        self.covariance.load_state_dict(state)

    def learned_metrics(self) -> dict[str, float]:
        """The learned weight of similarity, for the log."""
        return {"tempo/similarity_weight": float(self.covariance.weights.sum())}


@dataclass
class KernelBaselineConfig(PrefixTreeConfig):
    r"""
    Configuration class for the [`KernelBaselineTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, those of [`~tempo_trl.methods.prefix_tree_method.PrefixTreeConfig`] (`epsilon_high` 0.28, `rollout`,
    `leaf_weights`), and these.

    Args:
        similarity_block (`int`, *optional*, defaults to `1`):
            Prefixes are compared every so many tokens at the start of completions, and at steps of at most an eighth
            of the depth later.
        similarity_order (`int`, *optional*, defaults to `2`):
            Prefixes are compared by their n-grams of tokens up to this length.
    """

    similarity_block: int = field(
        default=1, metadata={"help": "Tokens between two comparisons of prefixes, at the start of completions."}
    )
    similarity_order: int = field(
        default=2, metadata={"help": "Longest n-gram of tokens by which prefixes are compared."}
    )

    def check(self) -> None:
        """Validate the settings of the similarity and the rollout."""
        super().check()
        for name in ("similarity_block", "similarity_order"):
            if (given := getattr(self, name)) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {given!r}.")


class KernelBaselineTrainer(PrefixTreeTrainer):
    """
    Trainer for the kernel baseline, our own method. The only change with respect to [`~trl.GRPOTrainer`] is the
    advantage of a token: the outcome minus an estimate of the value of the state before it. The estimate comes from
    the other completions of the group. Those that share the token's prefix, or wrote something similar, have more
    weight; how much more is learned from earlier batches.

    The policy gradient stays unbiased, because the baseline of a completion never depends on its own reward. If
    neither equal nor similar prefixes predict rewards, it is RLOO.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`KernelBaselineConfig`].

    Raises:
        ValueError: if `args` is not a [`KernelBaselineConfig`].

    Note:
        On grown trees (`rollout` other than `"iid"`) a token's baseline leaves out the token's whole branch, not only
        its completion: completions that share a sampled token are dependent.
    """

    _tag_names = ["trl", "kernel-baseline"]
    _name = "Kernel_baseline"
    _config_cls = KernelBaselineConfig
    method_name = "kernel_baseline"

    def _prepare_credit(self):
        args = self.args
        sketch = Sketch(args.similarity_block, tuple(range(1, args.similarity_order + 1)))
        self.learned = KernelBaselineCredit(sketch, args.leaf_weights, args.forced_tokens)

    def credit(self, batch):
        return self.learned(batch)

    def _load_method(self, checkpoint):
        TokenCreditTrainer._load_method(self, checkpoint)  # it never had another file
