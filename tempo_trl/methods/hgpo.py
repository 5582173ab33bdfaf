"""HGPO: advantages per turn among visits of the same state, averaged over how much history a state has."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.anchors import relative_returns, turn_of_steps, visits
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_counts, check_number
from tempo_trl.credit.turns import first_steps, spread_turns
from tempo_trl.methods.gigpo import labels_of, step_returns, whole_outcome
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.settings import refuse_rewards_that_are_normalized_first
from tempo_trl.trainers.token_credit import TokenCreditTrainer


def hgpo_credit(
    batch: Batch, history: int = 2, history_weight: float = 1.0, gamma: float = 0.95, scale: str = "group"
) -> Credit:
    r"""
    HGPO's credit (https://huggingface.co/papers/2602.22817).

    $$A_{i,n} = \sum_k w_k A^{(k)}_{i,n}, \quad w_k \propto (k + 1)^\alpha$$

    for every token of turn n. A^(k) is the discounted return from turn n on, relative to all turns of the group before
    which the same last k + 1 observations were seen ([`~tempo_trl.credit.anchors.relative_returns`]). The sum is over
    those k from 0 to `history` for which there is another such turn. A turn whose state is visited once has 0.

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups.
        history (`int`, *optional*, defaults to `2`):
            Most observations before the last one.
        history_weight (`float`, *optional*, defaults to `1.0`):
            alpha. 0 weighs all k equally.
        gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn.
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`. With `"group"` advantages are divided by the standard deviation over their visits.
            With `"batch"` returns are divided by their scale over all ranks
            ([`~tempo_trl.credit.returns.return_scale`]).

    Returns:
        [`~tempo_trl.Credit`], whose `added` is the difference to GRPO's advantage.
    """
    returns, sizes = step_returns(batch, gamma, scale)
    total = weights = torch.zeros_like(returns)
    turn = turn_of_steps(first_steps(batch.turns, batch.steps).numpy(), returns.shape[1])
    for k, labels in enumerate(labels_of(batch, history)):
        # Not scored, or fewer than k observations before the last one.
        labels = np.where(batch.rewards.isnan()[:, None].numpy() | (turn < k), -1, labels)
        weight = (k + 1) ** history_weight * torch.from_numpy(visits(labels) > 1)
        total = total + weight * relative_returns(returns, labels, scale == "group", sizes)
        weights = weights + weight
    advantages = spread_turns((total / weights.clamp(min=1.0)).float(), batch.steps)
    outcome = whole_outcome(batch, scale).float().nan_to_num(0.0)
    return Credit(advantages, (advantages - outcome[:, None]) * batch.loss_mask, outcome=outcome)


@with_help
@dataclass
class HGPOConfig(TokenCreditConfig):
    r"""
    Configuration class for the [`HGPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    those of [`TokenCreditConfig`], and these. `scale_rewards="none"` leaves out the division by standard deviations.

    Args:
        state_history (`int`, *optional*, defaults to `2`):
            Most observations before the last one that states are compared by (the paper's K, 2 and 4).
        history_weight (`float`, *optional*, defaults to `1.0`):
            alpha: groups that share k more observations weigh (k + 1) ** alpha (the paper uses 1).
        gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn.
    """

    state_history: int = 2
    history_weight: float = 1.0
    gamma: float = 0.95

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        check_counts(self, state_history=0)
        refuse_rewards_that_are_normalized_first(self, "visits of a state are compared by the weighted sum")
        check_number("history_weight", self.history_weight)
        check_number("gamma", self.gamma, 1)


class HGPOTrainer(TokenCreditTrainer):
    """
    Trainer for HGPO (https://huggingface.co/papers/2602.22817), for agents. The only change with respect to
    [`~trl.GRPOTrainer`] is the advantage: that of a turn is its return relative to turns before which the same was
    seen, averaged over how many observations are compared. Closer histories weigh more.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is an [`HGPOConfig`].
        step_reward_funcs, observation_key_func:
            As for [`TokenCreditTrainer`].

    Raises:
        ValueError: if `args` is not an [`HGPOConfig`].

    Note:
        Written from the paper's abstract and the authors' public code. Departures from that code: the weights are
        (k + 1) ** alpha as in the paper (their code has k + 2, because it counts from 1); a group whose advantage
        happens to be 0 keeps its weight; standard deviations have ddof 1, as TRL's. No advantage per completion is
        added, as in their default. Turns whose state is visited once are not trained.
    """

    _tag_names = ["trl", "hgpo"]
    _name = "HGPO"
    _paper = arxiv_paper(
        "2602.22817",
        "he2026hierarchy",
        "Hierarchy-of-Groups Policy Optimization for Long-Horizon Agentic Tasks",
        "Shuo He and Lang Feng and Qi Wei and Xin Cheng and Lei Feng and Bo An",
    )
    _config_cls = HGPOConfig
    method_name = "hgpo"
    reads_step_rewards = reads_observations = True

    def credit(self, batch):
        args = self.args
        return hgpo_credit(batch, args.state_history, args.history_weight, args.gamma, args.scale_rewards)
