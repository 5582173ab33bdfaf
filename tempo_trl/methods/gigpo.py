"""GiGPO: GRPO's advantage per completion plus an advantage per turn among the visits of the same state."""

from dataclasses import dataclass

import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.anchors import relative_returns
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.turns import spread_turns
from tempo_trl.methods.agents import StateFields, labels_of, scale_of, whole_outcome
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
    returns = step_returns(batch, gamma, scale)
    relative = relative_returns(returns, labels_of(batch, history)[history], normalize=scale == "group")
    td = spread_turns((step_advantage_weight * relative).float(), batch.steps)
    return Credit(outcome.float().nan_to_num(0.0)[:, None] + td, td, outcome=outcome)


def step_returns(batch: Batch, gamma: float, scale: str) -> torch.Tensor:
    """Discounted return from each turn on, `(R, N)`, scaled over the batch; `"group"` scales them state by state."""
    returns = batch.turn_rewards.returns(gamma)
    return returns / scale_of(batch, scale, gamma)[:, None] if scale == "batch" else returns


@with_help
@dataclass
class GiGPOConfig(StateFields, TokenCreditConfig):
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

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        self.check_states()
        refuse_rewards_that_are_normalized_first(self, "visits of a state are compared by the weighted sum")
        if not 0.0 <= self.step_advantage_weight < float("inf"):
            raise ValueError(
                "`step_advantage_weight` must be a finite number of at least 0, got "
                f"{self.step_advantage_weight!r}. The paper uses 1; 0 is GRPO."
            )
        check_gamma(self.gamma)


def check_gamma(gamma: float) -> None:
    """Raise ValueError unless `gamma` is a discount per turn."""
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"`gamma` must be between 0 and 1, got {gamma!r}. The paper uses 0.95.")


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
    _paper = {
        "title": "Group-in-Group Policy Optimization for LLM Agent Training",
        "id": "2505.10978",
        "citation": """@article{feng2025group,
    title        = {{Group-in-Group Policy Optimization for LLM Agent Training}},
    author       = {Lang Feng and Zhenghai Xue and Tingcong Liu and Bo An},
    year         = 2025,
    eprint       = {arXiv:2505.10978}
}""",
    }
    _config_cls = GiGPOConfig
    method_name = "gigpo"
    reads_step_rewards = reads_observations = True

    def credit(self, batch):
        args = self.args
        return gigpo_credit(
            batch,
            step_advantage_weight=args.step_advantage_weight,
            gamma=args.gamma,
            history=args.state_history,
            scale=args.scale_rewards,
        )
