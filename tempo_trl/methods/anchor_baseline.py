"""The anchor baseline: the outcome minus a leave-one-out baseline from completions that come to the same state."""

from dataclasses import dataclass, field

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups, outcome_scale
from tempo_trl.credit.anchors import agreements, anchor_baselines, anchor_statistics, lambda_advantages
from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance, pairwise_lcp
from tempo_trl.credit.turns import spread_turns, turn_returns, turn_starts
from tempo_trl.methods.anchors import AnchorFields, labels_of, whole_outcome
from tempo_trl.methods.prefix_baseline import value_error
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.token_credit import TokenCreditTrainer


class AnchorBaselineCredit:
    r"""
    Credit over the anchor baseline (ours, no paper's): $A_{i,n} = G_{i,n} - b_{i,n}$ for every token of turn n, or
    the generalized advantage from these errors.

    b estimates the value of the state before the turn from the other completions of the group
    ([`~tempo_trl.credit.anchors.anchor_baselines`]): those that saw the same last observations weigh more. How
    much more is learned from earlier batches.

    Args:
        history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too.
        trace_lambda (`float`, *optional*, defaults to `1.0`):
            How much of a turn's credit comes from the own return instead of the baselines of later states
            ([`~tempo_trl.credit.anchors.lambda_advantages`]).
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`.
    """

    def __init__(self, history: int = 2, trace_lambda: float = 1.0, scale: str = "group"):
        self.history, self.trace_lambda, self.scale = history, trace_lambda, scale
        self.covariance = PrefixCovariance()

    def __call__(self, batch: Batch) -> Credit:
        outcome, returns = self._returns(batch)
        starts = turn_starts(batch.steps).numpy()
        agreement = agreements(labels_of(batch, self.history), starts, pairwise_lcp(batch.tree))
        baselines = anchor_baselines(returns, agreement, self.covariance)
        untrained = flat_groups(outcome, batch.num_generations).repeat_interleave(batch.num_generations)
        errors = np.where(untrained.numpy()[:, None], 0.0, returns - baselines)
        metrics = value_error(batch, _on_tokens(np.nan_to_num(errors), batch))
        advantages = _on_tokens(lambda_advantages(errors, self.trace_lambda), batch)
        td = (advantages - outcome.nan_to_num(0.0)[:, None]) * batch.loss_mask
        return Credit(advantages, td, metrics, statistics=anchor_statistics(returns, agreement, batch.owned.numpy()))

    def _returns(self, batch: Batch) -> tuple[torch.Tensor, np.ndarray]:
        """GRPO's advantage of the whole return, `(R,)`, and returns from each turn in the same unit, `(R, N)`."""
        outcome = whole_outcome(batch, self.scale)
        if batch.step_rewards is None:
            return outcome, turn_returns(None, batch.steps, outcome, 1.0).double().numpy()
        returns = turn_returns(batch.step_rewards, batch.steps, batch.rewards, 1.0).double()
        return outcome, (returns / outcome_scale(returns[:, 0], batch.num_generations, self.scale)[:, None]).numpy()

    def update(self, statistics: list[PairStatistics]) -> None:
        """Learn from a batch: the statistics of all ranks."""
        self.covariance.update(sum(statistics, PairStatistics()))

    def learned(self) -> dict[str, float]:
        """The share of the variance of returns that is due to states, and each level's covariance, for the log."""
        levels = self.covariance(np.arange(1, self.history + 4)).tolist()
        return {"tempo/anchor_explained": self.covariance.explained} | {
            f"tempo/anchor_covariance_{level}": value for level, value in enumerate(levels, start=1)
        }

    def state_dict(self) -> dict:
        """The learned covariance."""
        return self.covariance.state_dict()

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`."""
        self.covariance.load_state_dict(state)


def _on_tokens(per_turn: np.ndarray, batch: Batch) -> torch.Tensor:
    return spread_turns(torch.from_numpy(per_turn).float(), batch.steps)


@dataclass
class AnchorBaselineConfig(AnchorFields, TokenCreditConfig):
    r"""
    Configuration class for the [`AnchorBaselineTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, those of [`TokenCreditConfig`], and these.

    Args:
        anchor_history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too. More of them cost little: what they tell is
            learned.
        trace_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of the generalized advantage, 0 to 1. 1 is unbiased. 0.9 to 0.95 has less noise where an episode has
            many turns, and a small bias (docs/evidence/agents.md).
    """

    anchor_history: int = field(
        default=2, metadata={"help": "Observations before the last one that are compared, too."}
    )
    trace_lambda: float = field(
        default=1.0, metadata={"help": "Lambda of the generalized advantage of turns. 1 is unbiased."}
    )

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        self.check_anchors()
        if not 0.0 <= self.trace_lambda <= 1.0:
            raise ValueError(f"`trace_lambda` must be between 0 and 1, got {self.trace_lambda!r}. 1 is unbiased.")


class AnchorBaselineTrainer(TokenCreditTrainer):
    """
    Trainer for the anchor baseline, our own method, for agents. The only change with respect to [`~trl.GRPOTrainer`]
    is the advantage of a turn: its return minus an estimate of the value of the state before it. The estimate comes
    from the other completions of the group. Those that saw the same last observations weigh more; how much more is
    learned from earlier batches.

    The policy gradient stays unbiased, because the baseline of a completion never depends on its own reward. If states
    do not predict rewards, it is RLOO.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is an [`AnchorBaselineConfig`].
        step_reward_funcs, observation_key_func:
            As for [`TokenCreditTrainer`].

    Raises:
        ValueError: if `args` is not an [`AnchorBaselineConfig`].

    Note:
        All tokens of a turn have the baseline of the state before it. In a run without turns it is RLOO: use
        [`PrefixBaselineTrainer`] there. A scale that is estimated from the same rewards (`scale_rewards` other than
        `"none"`) makes the gradient biased, as in GRPO.
    """

    _tag_names = ["trl", "anchor-baseline"]
    _name = "Anchor_baseline"
    _config_cls = AnchorBaselineConfig
    method_name = "anchor_baseline"
    reads_step_rewards = reads_observations = True

    def _credit_function(self):
        args = self.args
        return AnchorBaselineCredit(args.anchor_history, args.trace_lambda, args.scale_rewards)

    def _learned_metrics(self):
        return super()._learned_metrics() | self.credit_func.learned()
