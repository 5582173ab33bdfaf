"""The configuration of `PPOTrainer`: TRL's `GRPOConfig` and what PPO with a critic adds."""

import math
from dataclasses import dataclass, field

from transformers import SchedulerType
from trl import GRPOConfig

from tempo_trl.tree_forward.config import TreeForwardFields

KL_PLACES = ("loss", "reward")
READ_METRICS = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)  # schedules that wait for an evaluation


@dataclass
class PPOConfig(TreeForwardFields, GRPOConfig):
    r"""
    Configuration class for the [`PPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    except for those below. Tables are those of the TEMPO paper (https://huggingface.co/papers/2509.18314), whose
    baseline this is.

    Args:
        gae_gamma (`float`, *optional*, defaults to `1.0`):
            Discount of a token, from 0 to 1 (table 2).
        gae_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of generalised advantage estimation, from 0 to 1 (table 2). 1 is return minus value.
        whiten_advantages (`bool`, *optional*, defaults to `True`):
            Whether to give the advantages of a generation batch, over all ranks, mean 0 and variance 1. The paper
            does not say; verl, which it trained with, does.
        critic_model_name_or_path (`str`, *optional*):
            Model that the critic starts from, with its value head where it has one of a single label. Unset it is the
            actor's, with a value head of zeros.
        shared_trunk (`bool`, *optional*, defaults to `False`):
            Whether the critic is a linear value head on the policy's last hidden state instead of a model of its own.
            The paper has a critic of the actor's size.
        critic_learning_rate (`float`, *optional*, defaults to `1e-5`):
            Learning rate of the critic, or of the value head. Table 2 has one learning rate, 1e-6, and does not say
            whose; 1e-5 is verl's for critics. Schedule, warmup, Adam's parameters, weight decay and `max_grad_norm`
            are the actor's.
        value_coef (`float`, *optional*, defaults to `0.1`):
            Coefficient of the value loss beside the policy's with `shared_trunk`; without it nothing is shared and
            the coefficient has no say.
        value_clip_range (`float`, *optional*):
            How far a value may move from the one at sampling time before it earns nothing more; `None` for any.
        kl_in (`str`, *optional*, defaults to `"loss"`):
            Where the KL penalty acts: `"loss"` adds TRL's term to the policy's loss, `"reward"` takes beta (log old -
            log reference) off each token's reward.
        beta (`float`, *optional*, defaults to `1e-4`):
            Coefficient of the KL penalty (table 2); TRL's default is 0.
        num_iterations (`int`, *optional*, defaults to `2`):
            Inner epochs over a generation batch (table 2); TRL's default is 1.
    """

    gae_gamma: float = field(default=1.0, metadata={"help": "Discount of a token, from 0 to 1."})
    gae_lambda: float = field(
        default=1.0, metadata={"help": "Lambda of generalised advantage estimation, from 0 to 1: 1 is return - value."}
    )
    whiten_advantages: bool = field(
        default=True,
        metadata={"help": "Whether to whiten the advantages over all tokens of a generation batch, of all ranks."},
    )
    critic_model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Model that the critic starts from. Unset it is the actor's, with a value head of zeros."},
    )
    shared_trunk: bool = field(
        default=False,
        metadata={"help": "Whether the critic is a value head on the policy itself instead of a model of its own."},
    )
    critic_learning_rate: float = field(
        default=1e-5,
        metadata={"help": "Learning rate of the critic, or of the value head with `shared_trunk`."},
    )
    value_coef: float = field(
        default=0.1, metadata={"help": "Coefficient of the value loss beside the policy's; only with `shared_trunk`."}
    )
    value_clip_range: float | None = field(
        default=None,
        metadata={"help": "How far a value may usefully move from the one at sampling time; None for no clipping."},
    )
    kl_in: str = field(
        default="loss",
        metadata={"help": "Where the KL penalty acts: `loss` (TRL's term) or `reward` (of each token)."},
    )
    beta: float = field(
        default=1e-4,
        metadata={"help": "KL coefficient. The TEMPO paper's PPO has 1e-4. If 0, no reference model is loaded."},
    )
    num_iterations: int = field(
        default=2, metadata={"help": "Inner epochs over a generation batch. The TEMPO paper's PPO has 2."}
    )

    def __post_init__(self):
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Raise ValueError for what is no PPO, and for what of TRL would be silently without effect."""
        self._check_numbers()
        if self.kl_in not in KL_PLACES:
            raise ValueError(f"`kl_in` must be one of {KL_PLACES}, got {self.kl_in!r}.")
        if self.shared_trunk and self.critic_model_name_or_path is not None:
            raise ValueError(
                "`shared_trunk` makes the policy itself the critic's trunk, so `critic_model_name_or_path`="
                f"{self.critic_model_name_or_path!r} would not be read. Unset one of the two."
            )
        self._refuse_what_belongs_to_groups()
        if self.lr_scheduler_type in READ_METRICS:
            raise ValueError(
                f"`lr_scheduler_type` is {SchedulerType(self.lr_scheduler_type).value!r}, which waits for a metric, "
                "and the critic's schedule has none. Take one that counts steps: 'linear', 'cosine', 'constant', ..."
            )
        if self.fp16:
            raise ValueError(
                "`fp16` scales the policy's loss against underflow, and the critic's gradients have no such scaling. "
                "Take `bf16=True`, or neither."
            )

    def _check_numbers(self) -> None:
        for name in ("gae_gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must lie between 0 and 1, got {getattr(self, name)!r}.")
        for name in ("critic_learning_rate", "value_coef"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {getattr(self, name)!r}.")
        if self.value_clip_range is not None and not self.value_clip_range > 0.0:
            raise ValueError(f"`value_clip_range` must be above 0, or None, got {self.value_clip_range!r}.")

    def _refuse_what_belongs_to_groups(self) -> None:
        if self.scale_rewards not in ("group", True):
            raise ValueError(
                f"`scale_rewards`={self.scale_rewards!r} would do nothing: PPO's advantages come from the critic, not "
                "from the group. Leave it unset; `whiten_advantages` is PPO's scaling."
            )
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"`multi_objective_aggregation`={self.multi_objective_aggregation!r} normalizes rewards within "
                "groups, of which PPO knows none: its reward is the weighted sum. Leave it unset."
            )
