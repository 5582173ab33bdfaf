"""The anchor baseline: the outcome minus a leave-one-out baseline from completions that come to the same state."""

from dataclasses import dataclass, field

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups, outcome_scale
from tempo_trl.credit.anchors import agreements, anchor_baselines, anchor_statistics
from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance, pairwise_lcp
from tempo_trl.credit.turns import spread_turns, turn_returns, turn_starts
from tempo_trl.methods.anchors import AnchorFields, labels_of, whole_outcome
from tempo_trl.methods.prefix_baseline import value_error
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.token_credit import TokenCreditTrainer


class AnchorBaselineCredit:
    r"""
    Credit over the anchor baseline (ours, no paper's): $A_{i,n} = G_{i,n} - b_{i,n}$ for every token of turn n.

    b estimates the value of the state before the turn from the other completions of the group
    ([`~tempo_trl.credit.anchors.anchor_baselines`]): those that saw the same last observations weigh more, and how
    much more is learned from earlier batches.

    Args:
        history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too.
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`.
    """

    def __init__(self, history: int = 2, scale: str = "group"):
        self.history, self.scale = history, scale
        self.covariance = PrefixCovariance()

    def __call__(self, batch: Batch) -> Credit:
        outcome, returns = self._returns(batch)
        starts = turn_starts(batch.turns).numpy()
        agreement = agreements(labels_of(batch, self.history), starts, pairwise_lcp(batch.tree))
        baselines = anchor_baselines(returns, agreement, self.covariance)
        untrained = flat_groups(outcome, batch.num_generations).repeat_interleave(batch.num_generations)
        per_turn = torch.from_numpy(np.nan_to_num(returns - baselines)).float()
        advantages = spread_turns(per_turn.masked_fill_(untrained[:, None], 0.0), batch.turns)
        td = (advantages - outcome.nan_to_num(0.0)[:, None]) * batch.loss_mask
        statistics = anchor_statistics(returns, agreement, batch.owned.numpy())
        return Credit(advantages, td, value_error(batch, advantages), statistics=statistics)

    def _returns(self, batch: Batch) -> tuple[torch.Tensor, np.ndarray]:
        """GRPO's advantage of the whole return, `(R,)`, and returns from each turn in the same unit, `(R, N)`."""
        outcome = whole_outcome(batch, self.scale)
        if batch.step_rewards is None:
            return outcome, turn_returns(None, batch.turns, outcome, 1.0).double().numpy()
        returns = turn_returns(batch.step_rewards, batch.turns, batch.rewards, 1.0).double()
        return outcome, (returns / outcome_scale(returns[:, 0], batch.num_generations, self.scale)[:, None]).numpy()

    def update(self, statistics: list[PairStatistics]) -> None:
        """Learn from a batch: the statistics of all ranks."""
        self.covariance.update(sum(statistics, PairStatistics()))

    def learned(self) -> dict[str, float]:
        """The share of the variance of returns that states explain, and the covariance of each level, for the log."""
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


@dataclass
class AnchorBaselineConfig(AnchorFields, TokenCreditConfig):
    r"""
    Configuration class for the [`AnchorBaselineTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, those of [`TokenCreditConfig`], and this one.

    Args:
        anchor_history (`int`, *optional*, defaults to `2`):
            Observations before the last one that are compared, too. More of them cost little: what they tell is
            learned.
    """

    anchor_history: int = field(
        default=2, metadata={"help": "Observations before the last one that are compared, too."}
    )

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        self.check_anchors()


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
    reads_step_rewards = True

    def _credit_function(self):
        return AnchorBaselineCredit(self.args.anchor_history, self.args.scale_rewards)

    def _learned_metrics(self):
        return super()._learned_metrics() | self.credit_func.learned()
