"""The prefix baseline: the outcome minus a leave-one-out baseline from completions that share the token's prefix."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.advantages import are_equal, leave_one_out, outcome_and_td_errors
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.grown_tree import branches
from tempo_trl.credit.prefix_baseline import baseline_tokens, value_error_sums
from tempo_trl.credit.prefix_covariance import PrefixCovariance
from tempo_trl.methods.prefix_tree_method import PrefixTreeConfig, PrefixTreeTrainer, on_grown_trees

COVARIANCE_DEPTHS = np.array([1, 4, 16, 64, 256])  # tokens at which the learned covariance is logged


class LoggedCovariance(PrefixCovariance):
    """A covariance that is logged at some numbers of shared tokens."""

    def learned_metrics(self):
        named = zip(COVARIANCE_DEPTHS, self(COVARIANCE_DEPTHS).tolist(), strict=True)
        return super().learned_metrics() | {f"tempo/prefix_covariance_{depth}": value for depth, value in named}


def prefix_baseline_credit(batch: Batch, covariance: PrefixCovariance, forced_tokens: str = "keep") -> Credit:
    r"""
    Credit over the adaptive prefix baseline (ours, no paper's): $A_{i,t} = g_i - b_{i,t}$.

    b estimates the value of the state before the token from the other completions of the group
    ([`~tempo_trl.credit.prefix_baseline.tree_baselines`]).

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups.
        covariance ([`~tempo_trl.credit.prefix_covariance.PrefixCovariance`]):
            Of earlier batches, so that b does not depend on the reward that it is subtracted from.
        forced_tokens (`str`):
            As in [`PrefixBaselineConfig`], for completions that were grown as trees.

    Returns:
        [`~tempo_trl.Credit`], with the batch's pairs as `statistics`. Its `outcome` is relative to the mean of the
        others (RLOO), and `added` is what prefixes add to that. Only independent completions have the metric
        `tempo/value_error`.
    """
    given = batch.tree, batch.outcome, batch.completion_ids.shape[1]
    if batch.tree_rollouts is None:
        advantages = baseline_tokens(*given, covariance)
        sums = value_error_sums(advantages, batch.outcome, batch.loss_mask, batch.num_generations, batch.counted)
        outcome = leave_one_out(batch.outcome, batch.num_generations).float()
        added = _added(advantages, outcome)
        return Credit(advantages, added, {"tempo/value_error": sums}, outcome=outcome, statistics=batch.pairs)
    segments = branches(batch.tree_rollouts, given[2]).segment
    advantages = baseline_tokens(*given, covariance, segments)
    outcome = outcome_and_td_errors(*given, batch.weights)[0][:, 0]
    credit = Credit(advantages, _added(advantages, outcome), outcome=outcome, statistics=batch.pairs)
    return on_grown_trees(credit, batch, forced_tokens)


def _added(advantages: torch.Tensor, outcome: torch.Tensor) -> torch.Tensor:
    """What prefixes add to an outcome over a constant baseline: exactly 0 where they say nothing."""
    constant = outcome[:, None].expand_as(advantages)
    is_rounding = are_equal(torch.minimum(advantages, constant), torch.maximum(advantages, constant))
    return (advantages - constant).masked_fill(is_rounding, 0.0)


@with_help
@dataclass
class PrefixBaselineConfig(PrefixTreeConfig):
    """
    Configuration class for the [`PrefixBaselineTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, and those of [`~tempo_trl.methods.prefix_tree_method.PrefixTreeConfig`] (`epsilon_high` 0.28, `rollout`).
    """


class PrefixBaselineTrainer(PrefixTreeTrainer):
    """
    Trainer for the adaptive prefix baseline, our own method. The only change with respect to [`~trl.GRPOTrainer`] is
    the advantage of a token: the outcome minus an estimate of the value of the state before it. The estimate comes
    from the other completions of the group. Those that share the token's prefix have more weight; how much more is
    learned from earlier batches.

    The baseline of a completion never depends on its own reward, so the policy gradient stays unbiased, but for GRPO's
    division by the group's standard deviation. If prefixes do not predict rewards, it is RLOO.
    docs/evidence/toy_tasks.md compares it with the other methods.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`PrefixBaselineConfig`].

    Raises:
        ValueError: if `args` is not a [`PrefixBaselineConfig`].

    Note:
        On grown trees (`rollout` other than `"iid"`) a token's baseline leaves out the token's whole branch, not only
        its completion: completions that share a sampled token are dependent.
    """

    _tag_names = ["trl", "prefix-baseline"]
    _name = "Prefix_baseline"
    _config_cls = PrefixBaselineConfig
    method_name = "prefix_baseline"

    def _prepare_credit(self):
        self.learned = LoggedCovariance()

    def credit(self, batch):
        return prefix_baseline_credit(batch, self.learned, self.args.forced_tokens)
