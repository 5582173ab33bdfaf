"""The configurations of the two methods called TreeRPO: TRL's `GRPOConfig`, the tree, and what its credit adds."""

from dataclasses import dataclass, field

from trl import GRPOConfig

from tempo_trl.credit.siblings import SIBLING_SCALES
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.tree_forward.config import TreeForwardFields

SHARED_TOKENS = ("once", "per_leaf")


@dataclass
class SiblingCreditFields:
    """
    Fields that both methods share.

    Args:
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
    """

    shared_tokens: str = field(
        default="once",
        metadata={"help": "Tokens of several completions are in the loss `once`, or once a completion: `per_leaf`."},
    )
    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={"help": "How to correct for what vLLM samples: by token, where a shared token is in the loss once."},
    )

    def __post_init__(self):
        super().__post_init__()
        self.check()

    def check_credit(self) -> None:
        """Raise ValueError for an unknown choice, and for what sibling groups leave no room for."""
        if self.shared_tokens not in SHARED_TOKENS:
            raise ValueError(f"`shared_tokens` must be one of {SHARED_TOKENS}, got {self.shared_tokens!r}.")
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"`multi_objective_aggregation` is {self.multi_objective_aggregation!r}, but siblings are compared by "
                "one reward, without GRPO's normalisation of each function: leave it at 'sum_then_normalize'."
            )
        if self.scale_rewards != GRPOConfig.scale_rewards:
            raise ValueError(
                f"`scale_rewards` is {self.scale_rewards!r}, which this method would not read: it compares siblings, "
                "not the completions of a prompt. Leave it unset."
            )
        if self.shared_tokens == "once":
            self._check_factors_of_a_completion()

    def _check_factors_of_a_completion(self) -> None:
        """Raise ValueError for what weighs whole completions: a shared token would have the weight of one of them."""
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        for name, weighs, instead in (
            (
                "vllm_importance_sampling_mode",
                corrected and self.vllm_importance_sampling_mode.startswith("sequence"),
                "'token_truncate' or 'token_mask'",
            ),
            ("importance_sampling_level", self.importance_sampling_level == "sequence", "'token'"),
            ("off_policy_mask_threshold", self.off_policy_mask_threshold is not None, "None"),
            ("loss_type", self.loss_type == "vespo", "another one"),
        ):
            if weighs:
                raise ValueError(
                    f"`{name}` is {getattr(self, name)!r}, which weighs a completion as a whole, but a token that "
                    "several completions share is in the loss once, in the first of them: it would get the weight of "
                    f"that one for all. Take {instead}, or `shared_tokens='per_leaf'`."
                )


@dataclass
class TreeRPOConfig(SiblingCreditFields, FixedTreeFields, TreeForwardFields, GRPOConfig):
    r"""
    Configuration class for the [`TreeRPOTrainer`] (https://huggingface.co/papers/2506.05183): every field of
    [`~trl.GRPOConfig`], with its meaning and but for the last of these its default, those of
    [`~tempo_trl.rollout.config_fields.FixedTreeFields`], and these.

    Args:
        advantage_scale (`str`, *optional*, defaults to `"std"`):
            What the difference of a segment's value from its siblings' mean is divided by: `"none"` for 1, `"std"` for
            their standard deviation, as GRPO's, `"bernoulli"` for the $\sqrt{m (1 - m)}$ of their mean m. The paper's
            abstract, which is what we have, names none.
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
    """

    advantage_scale: str = field(
        default="std",
        metadata={"help": "Scale of the advantages of siblings: `none`, `std` or `bernoulli`."},
    )

    def check(self) -> None:
        """Raise ValueError for a tree or a credit that is none."""
        self.check_fixed_tree()
        self.check_credit()
        if self.advantage_scale not in SIBLING_SCALES:
            raise ValueError(f"`advantage_scale` must be one of {SIBLING_SCALES}, got {self.advantage_scale!r}.")


@dataclass
class TreeRPOEntropyConfig(SiblingCreditFields, EntropyTreeFields, TreeForwardFields, GRPOConfig):
    """
    Configuration class for the [`TreeRPOEntropyTrainer`] (hierarchical TreeRPO): every field of
    [`~trl.GRPOConfig`], those of [`~tempo_trl.rollout.config_fields.EntropyTreeFields`], and these. `num_generations`
    is the largest number of leaves of a tree. Defaults that the text changes:

    Args:
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
        temperature (`float`, *optional*, defaults to `0.6`), top_p (`float`, *optional*, defaults to `0.85`), \
        top_k (`int`, *optional*, defaults to `25`), repetition_penalty (`float`, *optional*, defaults to `1.1`):
            Sampling (section 4.2.2). TRL's loss divides the logits by the temperature, and knows nothing of the
            other three.
        vllm_importance_sampling_correction (`bool`, *optional*, defaults to `False`):
            TRL's default is `True`. The tokens that the cuts above leave are likelier under the sampler than under
            the policy of the loss, each of them: over a completion the correction would weigh it down to nothing.
    """

    temperature: float = field(default=0.6, metadata={"help": "Sampling temperature; the text has 0.6."})
    top_p: float = field(default=0.85, metadata={"help": "Nucleus sampling; the text has 0.85."})
    top_k: int = field(default=25, metadata={"help": "Tokens that can be sampled; the text has 25."})
    repetition_penalty: float = field(default=1.1, metadata={"help": "Repetition penalty; the text has 1.1."})
    vllm_importance_sampling_correction: bool = field(
        default=False,
        metadata={"help": "Whether to correct for what vLLM samples; not with top_p, top_k or a repetition penalty."},
    )

    def check(self) -> None:
        """Raise ValueError for a tree or a credit that is none."""
        self.check_entropy_tree()
        self.check_credit()
