"""The anchor baseline: the outcome minus a leave-one-out baseline from completions that come to the same state."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.agreement import (
    States,
    agreements,
    anchor_baselines,
    anchor_statistics,
    lambda_advantages,
    visited_returns,
)
from tempo_trl.credit.level_covariance import LearnedCovariance, LevelCovariance
from tempo_trl.credit.prefix_covariance import pairwise_lcp
from tempo_trl.credit.turns import spread_turns, turn_starts
from tempo_trl.methods.agents import StateFields, labels_of, scale_of, whole_outcome
from tempo_trl.methods.prefix_baseline import value_error
from tempo_trl.removed import with_former_names
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.settings import refuse_rewards_that_are_normalized_first
from tempo_trl.trainers.token_credit import TokenCreditTrainer


class AnchorBaselineCredit(LearnedCovariance):
    r"""
    Credit over the anchor baseline (ours, no paper's): $A_{i,n} = G_{i,n} - b_{i,n}$ for every token of turn n, or
    the generalized advantage from these errors.

    b estimates the value of the state before the turn from the other completions of the group
    ([`~tempo_trl.credit.agreement.anchor_baselines`]): those that saw the same last observations weigh more. How
    much more is learned from earlier batches.

    Args:
        history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too.
        trace_lambda (`float`, *optional*, defaults to `1.0`):
            How much of a turn's credit comes from the own return instead of the baselines of later states
            ([`~tempo_trl.credit.agreement.lambda_advantages`]).
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`, of the returns ([`~tempo_trl.credit.returns.return_scale`]).
    """

    def __init__(self, history: int = 2, trace_lambda: float = 1.0, scale: str = "group"):
        super().__init__(LevelCovariance())
        self.history, self.trace_lambda, self.scale = history, trace_lambda, scale

    def __call__(self, batch: Batch) -> Credit:
        returns, whole = self._returns(batch)
        states = self._states(batch)
        earned = visited_returns(returns, whole, states)
        errors = np.full(returns.shape, np.nan)
        own = returns[states.row, states.turn]
        errors[states.row, states.turn] = own - anchor_baselines(earned, states, self.covariance)
        metrics = value_error(batch, _on_tokens(np.nan_to_num(errors), batch), torch.from_numpy(whole))
        advantages = _on_tokens(lambda_advantages(errors, self.trace_lambda), batch)
        outcome = whole_outcome(batch, self.scale).float().nan_to_num(0.0)
        td = (advantages - outcome[:, None]) * batch.loss_mask
        statistics = anchor_statistics(earned, states, batch.counted.numpy())
        return Credit(advantages, td, metrics, sequence_advantages=outcome, statistics=statistics)

    def _states(self, batch: Batch) -> States:
        labels, starts = labels_of(batch, self.history), turn_starts(batch.steps).numpy()
        return agreements(labels, starts, pairwise_lcp(batch.tree))

    def _returns(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return from each turn on, `(R, N)`, and whole returns, `(R,)`, in one unit: without step rewards TRL's."""
        if batch.step_rewards is None:
            rewards, scale = batch.turn_rewards._replace(reward=batch.advantages), torch.ones(len(batch.advantages))
        else:
            rewards, scale = batch.turn_rewards, scale_of(batch, self.scale)
        return (rewards.returns() / scale[:, None]).numpy(), (rewards.whole_returns() / scale).numpy()

    def learned_metrics(self) -> dict[str, float]:
        """The share of the variance of returns that is due to states, and each level's covariance, for the log."""
        levels = self.covariance(np.arange(1, self.history + 4)).tolist()
        return {"tempo/state_r2": self.covariance.explained} | {
            f"tempo/state_covariance_{level}": value for level, value in enumerate(levels, start=1)
        }


def _on_tokens(per_turn: np.ndarray, batch: Batch) -> torch.Tensor:
    return spread_turns(torch.from_numpy(per_turn).float(), batch.steps)


@with_former_names("anchor_history")
@with_help
@dataclass
class AnchorBaselineConfig(StateFields, TokenCreditConfig):
    r"""
    Configuration class for the [`AnchorBaselineTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, those of [`TokenCreditConfig`], and these.

    Args:
        state_history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too. More of them cost little: what they tell is
            learned.
        trace_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of the generalized advantage, 0 to 1. 1 has no bias of its own. 0.9 to 0.95 has less noise where an
            episode has many turns, and a small bias (docs/evidence/agents.md#the-gradient).
    """

    state_history: int = 2
    trace_lambda: float = 1.0

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        self.check_states()
        if not 0.0 <= self.trace_lambda <= 1.0:
            raise ValueError(f"`trace_lambda` must be between 0 and 1, got {self.trace_lambda!r}. 1 is unbiased.")


class AnchorBaselineTrainer(TokenCreditTrainer):
    """
    Trainer for the anchor baseline, our own method, for agents. The only change with respect to [`~trl.GRPOTrainer`]
    is the advantage of a turn: its return minus an estimate of the value of the state before it. The estimate comes
    from the other completions of the group. Those that saw the same last observations weigh more; how much more is
    learned from earlier batches.

    The baseline of a completion never depends on its own reward, so with `scale_rewards="none"` the policy gradient is
    unbiased. With one reward at the end, and if states do not predict it, it is RLOO.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is an [`AnchorBaselineConfig`].
        step_reward_funcs, observation_key_func:
            As for [`TokenCreditTrainer`].

    Raises:
        ValueError: if `args` is not an [`AnchorBaselineConfig`], or if `multi_objective_aggregation` is
            `"normalize_then_sum"` with `step_reward_funcs`.

    Note:
        All tokens of a turn have the baseline of the state before it. In a run without turns it is RLOO: use
        [`PrefixBaselineTrainer`] there. A scale that is estimated from the same rewards (`scale_rewards` other than
        `"none"`) makes the gradient biased, as in GRPO. With `step_delimiter` an end-of-sequence token right after a
        delimiter belongs to the step before it, so at that one place the baseline depends on the action.
    """

    _tag_names = ["trl", "anchor-baseline"]
    _name = "Anchor_baseline"
    _config_cls = AnchorBaselineConfig
    method_name = "anchor_baseline"
    reads_step_rewards = reads_observations = True

    def _prepare_credit(self):
        args = self.args
        if self.step_rewards is not None:
            refuse_rewards_that_are_normalized_first(args, "`step_reward_funcs` are added to the weighted sum")
        self.learned = AnchorBaselineCredit(args.state_history, args.trace_lambda, args.scale_rewards)

    def credit(self, batch):
        return self.learned(batch)
