"""The configuration of `TEMPOTrainer`: TRL's `GRPOConfig` and what TEMPO adds."""

import math
from dataclasses import dataclass, field

from trl import GRPOConfig

from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields, LoggedTreesFields
from tempo_trl.rollout.tree import LEAF_WEIGHTS
from tempo_trl.tree_forward.config import TreeForwardFields

ESTIMATORS = ("tempo", "prefix_baseline")
ROLLOUTS = ("iid", "fixed", "entropy")


@dataclass
class TEMPOConfig(LoggedTreesFields, FixedTreeFields, EntropyTreeFields, TreeForwardFields, GRPOConfig):
    r"""
    Configuration class for the [`TEMPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    except for those below. beta 0 and the token-mean (DAPO) loss of the paper are TRL's own defaults.

    Args:
        td_coef (`float`, *optional*, defaults to `1.0`):
            Coefficient of the branch-gated TD error in the advantage of a token. The paper
            (https://huggingface.co/papers/2509.18314, section 4.2) has 1. 0 leaves the advantages of
            [`~trl.GRPOTrainer`] untouched.
        epsilon_high (`float`, *optional*, defaults to `0.28`):
            Upper clipping bound of the importance ratio. "Policy clipping parameter: 0.28, 0.2" (table 2); TRL's
            default is the value of `epsilon`, 0.2.
        advantage_estimator (`str`, *optional*, defaults to `"tempo"`):
            `"tempo"`, or `"prefix_baseline"`: a token's outcome against what the other completions of the group say
            about the state before it ([`~tempo_trl.credit.prefix_baseline.prefix_baselines`]; ours, no paper's).
            `td_coef` is TEMPO's alone.
        prefix_shrinkage (`str` or `float`, *optional*, defaults to `"auto"`):
            Shrinkage of the prefix baseline towards the value of the state before. `"auto"` learns from the batches
            before how much prefixes tell; a number k is fixed, infinity is RLOO.
        rollout (`str`, *optional*, defaults to `"iid"`):
            How the completions of a prompt are sampled to train on: `"iid"` independently, as TRL does, or grown as a
            tree that splits at `"fixed"` lengths or by `"entropy"`
            ([`~tempo_trl.rollout.config_fields.FixedTreeFields`],
            [`~tempo_trl.rollout.config_fields.EntropyTreeFields`]).
        leaf_weights (`str`, *optional*, defaults to `"by_branch"`):
            Say of each completion of a grown tree in the prefix values, and in the loss. `"by_branch"` gives every
            child of a node equal say, `"uniform"` every leaf. The same for `rollout="iid"`.
        log_trees_steps, log_trees_prompts (`int`):
            How often, and how many groups of a batch, are recorded for `tempo-trl report`
            ([`~tempo_trl.rollout.config_fields.LoggedTreesFields`]).
    """

    td_coef: float = field(
        default=1.0,
        metadata={
            "help": "Coefficient of the branch-gated TD error in the advantage of a token. The TEMPO paper has 1; "
            "0 leaves the advantages of GRPO untouched."
        },
    )
    epsilon_high: float | None = field(
        default=0.28,
        metadata={
            "help": "Upper-bound epsilon value for clipping. The TEMPO paper uses 0.28 above and 0.2 (`epsilon`) "
            "below. If None, it is the value of `epsilon`, as in GRPOConfig."
        },
    )
    advantage_estimator: str = field(
        default="tempo", metadata={"help": "Advantage of a token: `tempo`, or over a `prefix_baseline`."}
    )
    prefix_shrinkage: str = field(
        default="auto",
        metadata={"help": "Shrinkage of the prefix baseline: `auto` learns it, a number is fixed, `inf` is RLOO."},
    )
    rollout: str = field(
        default="iid",
        metadata={"help": "How completions are sampled: `iid`, or as a tree that splits `fixed` or by `entropy`."},
    )
    leaf_weights: str = field(
        default="by_branch",
        metadata={
            "help": "Equal say in a grown tree for all children of a node (`by_branch`) or all leaves (`uniform`)."
        },
    )

    def __post_init__(self):
        if self.num_generations == 0:  # TRL refuses 1, and divides by it first
            raise ValueError("`num_generations` must be at least 2, got 0: TEMPO compares the completions of a group.")
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Raise ValueError for a credit or a rollout that is none."""
        if not 0.0 <= self.td_coef < math.inf:
            raise ValueError(
                f"`td_coef` must be a finite number of at least 0, got {self.td_coef!r}. 1 is the paper's, 0 is GRPO."
            )
        choices = {"advantage_estimator": ESTIMATORS, "rollout": ROLLOUTS, "leaf_weights": LEAF_WEIGHTS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {known}, got {getattr(self, name)!r}.")
        self.prefix_shrinkage = _shrinkage(self.prefix_shrinkage)
        if self.rollout == "fixed":
            self.check_fixed_tree()
        if self.rollout == "entropy":
            self.check_entropy_tree()


def _shrinkage(given: str | float) -> str | float:
    try:
        number = "auto" if given == "auto" else float(given)
    except (TypeError, ValueError):
        number = math.nan
    if number != "auto" and not number >= 0:
        raise ValueError(f"`prefix_shrinkage` must be 'auto' or a number of at least 0, got {given!r}. inf is RLOO.")
    return number
