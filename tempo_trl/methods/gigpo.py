"""GiGPO: GRPO's advantage per completion plus an advantage per turn among the visits of the same state."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.anchors import relative_returns, state_labels
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_counts, check_number
from tempo_trl.credit.returns import return_scale
from tempo_trl.credit.turns import first_steps, spread_turns
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.settings import refuse_rewards_that_are_normalized_first
from tempo_trl.trainers.token_credit import TokenCreditTrainer


def gigpo_credit(
    batch: Batch, step_advantage_weight: float = 1.0, gamma: float = 0.95, history: int = 0, scale: str = "group"
) -> Credit:
    r"""
    GiGPO's credit (equation 8 of https://huggingface.co/papers/2505.10978).

    $$A_{i,n} = A^E_i + \omega \, A^S_{i,n}$$

    for every token of turn n. A^E is GRPO's advantage of the completion's return. A^S is its discounted return from
    turn n on, relative to all visits of the same state in the group
    ([`~tempo_trl.credit.anchors.relative_returns`]).

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups.
        step_advantage_weight (`float`, *optional*, defaults to `1.0`):
            omega. 0 is GRPO.
        gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn in A^S.
        history (`int`, *optional*, defaults to `0`):
            Observations before the last one that a state has, too.
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`. With `"group"` both advantages are divided by the standard deviation over their
            group, with `"none"` neither is: the two normalizations of the paper. `"batch"` is ours: A^E is divided by
            TRL's standard deviation, over all ranks, and A^S by the scale of returns over the same rows
            ([`~tempo_trl.credit.returns.return_scale`]).

    Returns:
        [`~tempo_trl.Credit`], with the second term as `added`.
    """
    outcome = whole_outcome(batch, scale)
    returns, sizes = step_returns(batch, gamma, scale)
    relative = relative_returns(returns, labels_of(batch, history)[history], scale == "group", sizes)
    added = spread_turns((step_advantage_weight * relative).float(), batch.steps)
    return Credit(outcome.float().nan_to_num(0.0)[:, None] + added, added, outcome=outcome)


def whole_outcome(batch: Batch, scale_rewards: str) -> torch.Tensor:
    """
    GRPO's advantage of each completion's undiscounted return, `(R,)`: the outcome, and the rewards per turn.

    Without rewards per turn it is `batch.outcome`.
    """
    if batch.step_rewards is None:
        return batch.outcome
    all_rewards = None if batch.all_rewards is None else batch.all_rewards.whole_returns()
    whole, sizes = (rewards.whole_returns() for rewards in (batch.turn_rewards, batch.turn_rewards.sizes))
    return outcome_advantages(whole, batch.num_generations, scale_rewards, all_rewards, sizes)


def step_returns(batch: Batch, gamma: float, scale: str) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Discounted return from each turn on, and its size, both `(R, N)`. `"batch"` divides them by
    [`~tempo_trl.credit.returns.return_scale`]; `"group"` scales states one by one, later.
    """
    rewards = batch.turn_rewards
    returns, sizes = rewards.returns(gamma), rewards.sizes.returns(gamma)
    if scale != "batch":
        return returns, sizes
    divisor = return_scale(rewards if batch.all_rewards is None else batch.all_rewards, gamma)
    return returns / divisor, sizes / divisor


def labels_of(batch: Batch, history: int = 0) -> np.ndarray:
    """Labels of the states of a batch, `(history + 1, R, N)`: [`~tempo_trl.credit.anchors.state_labels`]."""
    return state_labels(batch.observations, batch.num_generations, history, first_steps(batch.turns, batch.steps))


@with_help
@dataclass
class GiGPOConfig(TokenCreditConfig):
    r"""
    Configuration class for the [`GiGPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    those of [`TokenCreditConfig`], and these. `scale_rewards` is the paper's choice of F_norm: `"group"` divides by
    standard deviations, `"none"` does not.

    Args:
        step_advantage_weight (`float`, *optional*, defaults to `1.0`):
            Weight omega of the advantage within a state (the paper uses 1). 0 is GRPO.
        gamma (`float`, *optional*, defaults to `0.95`):
            Discount per turn in the advantage within a state (the paper uses 0.95).
        state_history (`int`, *optional*, defaults to `0`):
            Observations before the last one that must be equal, too. The paper compares the last one only.
    """

    step_advantage_weight: float = 1.0
    gamma: float = 0.95
    state_history: int = 0

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        check_counts(self, state_history=0)
        refuse_rewards_that_are_normalized_first(self, "visits of a state are compared by the weighted sum")
        check_number("step_advantage_weight", self.step_advantage_weight)
        check_number("gamma", self.gamma, 1)


class GiGPOTrainer(TokenCreditTrainer):
    """
    Trainer for GiGPO (https://huggingface.co/papers/2505.10978), for agents. The only change with respect to
    [`~trl.GRPOTrainer`] is the advantage of a turn: TRL's scalar per completion plus the turn's return relative to
    those of all visits of the same state in the group. A state is what the policy saw before the turn: the answer of a
    tool or of an environment, after the same prompt.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`GiGPOConfig`].
        step_reward_funcs, observation_key_func:
            As for [`TokenCreditTrainer`].

    Raises:
        ValueError: if `args` is not a [`GiGPOConfig`].

    Note:
        As in the paper, a turn's own return is part of the mean that it is compared with, and states are equal even if
        they were reached by different histories. The gradient is therefore biased, also with `scale_rewards="none"`.
        A^E is normalized over the trajectories of a group, as in the paper's equation 3; the authors' code by default
        does so over their steps. Returns within a state are normalized as there, with the sample standard deviation.
    """

    _tag_names = ["trl", "gigpo"]
    _name = "GiGPO"
    _paper = arxiv_paper(
        "2505.10978",
        "feng2025group",
        "Group-in-Group Policy Optimization for LLM Agent Training",
        "Lang Feng and Zhenghai Xue and Tingcong Liu and Bo An",
    )
    _config_cls = GiGPOConfig
    method_name = "gigpo"
    reads_step_rewards = reads_observations = True

    def credit(self, batch):
        args = self.args
        return gigpo_credit(batch, args.step_advantage_weight, args.gamma, args.state_history, args.scale_rewards)
