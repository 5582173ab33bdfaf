"""The configuration shared by all trainers: TRL's `GRPOConfig` with more fields."""

import math
from dataclasses import dataclass

from trl import GRPOConfig

from tempo_trl.config_help import with_help
from tempo_trl.credit.checks import check_choice, check_counts
from tempo_trl.trainers.settings import refuse_what_is_out_of_range
from tempo_trl.trainers.zero_advantages import refuse_gradients_without_advantage

TREE_FORWARD = ("off", "auto", "on")


@with_help
@dataclass
class TokenCreditConfig(GRPOConfig):
    """
    Configuration class for the [`TokenCreditTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, and those below. The configurations of all methods extend it.

    Args:
        log_trees_steps (`int`, *optional*, defaults to `10`):
            Optimizer steps between two records of prefix trees (`OUTPUT_DIR/tempo/trees_{step}.parquet`). The first
            batch sampled after that many steps is recorded, and each evaluation, with a record for each of its
            datasets. 0 records nothing.
        log_trees_prompts (`int`, *optional*, defaults to `8`):
            Maximum number of groups per record.
        advantage_floor (`float`, *optional*):
            Lower bound of the advantages, at most 0: a bad completion is pushed away only so far
            ([GRPO-lambda](https://huggingface.co/papers/2510.00194), section 4.2, clamps at -0.1). None for no bound.
        step_delimiter (`str`, *optional*):
            Text that ends a step within a turn, such as two line breaks. `step_reward_funcs` then score steps instead
            of turns.
        step_reward_weights (`list[float]`, *optional*):
            Weights of the `step_reward_funcs`. Defaults to 1 each.
        span_reward_weights (`list[float]`, *optional*):
            Weights of the `span_reward_funcs`: one number per function, for all of its criteria. Defaults to 1 each.
        skip_zero_advantages (`bool`, *optional*, defaults to `False`):
            Whether completions whose advantages are all 0, such as those of groups with equal rewards, are left out of
            the forward and backward pass of training. The gradient is the same, in less time; `tempo/frac_zero_std` is
            the share of such groups. TRL's `entropy` is then that of the completions that are computed, and the
            others count with a ratio of 1 in metrics of ratios.
        tree_forward (`str`, *optional*, defaults to `"off"`):
            Whether policy, old and reference log-probabilities are computed once for tokens that completions share
            ([`~tempo_trl.tree_forward.tree_pass.TreePass`]). `"off"` computes every completion separately, as TRL
            does. `"auto"` tests the tree on the first batch, and falls back to `"off"` with a warning if it is wrong
            or does not pay. `"on"` raises an error if the tree is not supported.
    """

    log_trees_steps: int = 10
    log_trees_prompts: int = 8

    skip_zero_advantages: bool = False

    advantage_floor: float | None = None

    step_delimiter: str | None = None
    step_reward_weights: list[float] | None = None
    span_reward_weights: list[float] | None = None

    tree_forward: str = "off"

    def __post_init__(self):
        refuse_what_is_out_of_range(self)
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Validate the settings. The trainer calls this again, because fields can be set after construction."""
        # YAML reads a bare `off` and `on` as booleans.
        self.tree_forward = {False: "off", True: "on"}.get(self.tree_forward, self.tree_forward)
        check_choice("tree_forward", self.tree_forward, TREE_FORWARD)
        if self.step_delimiter == "":
            raise ValueError("`step_delimiter` must be a text or None, got an empty one. Use None for whole turns.")
        if self.advantage_floor is not None and not self.advantage_floor <= 0.0:
            raise ValueError(
                f"`advantage_floor` must be at most 0, or None for no bound, got {self.advantage_floor!r}."
            )
        if self.skip_zero_advantages:
            refuse_gradients_without_advantage(self)
        self._check_weights()
        check_counts(self, log_trees_steps=0, log_trees_prompts=1)

    def _check_weights(self) -> None:
        for name in ("reward_weights", "step_reward_weights", "span_reward_weights"):
            weights = getattr(self, name)
            if weights is not None and not all(math.isfinite(weight) for weight in weights):
                raise ValueError(f"`{name}` must be finite numbers, got {weights}. Correct them.")
