"""Values of the configuration with which TRL would fail, or train nonsense, only after a whole generation."""

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

from trl import GRPOConfig

CHOICES = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),  # TRL asks in the loss, where ours is another
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
# The least and the largest value, None aside.
LIMITS = {
    "learning_rate": (0, math.inf),
    "weight_decay": (0, math.inf),
    "max_grad_norm": (0, math.inf),
    "beta": (0, math.inf),
    "epsilon": (0, math.inf),
    "epsilon_high": (0, math.inf),
    "delta": (0, math.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "top_entropy_quantile": (0, 1),
}
# In `generation_kwargs`: more than one completion per prompt, or no tensor. TRL repeats the prompts itself.
OF_ONE_COMPLETION = {"num_return_sequences": 1, "n": 1, "return_dict_in_generate": False}


def refuse_wrong_values(args: GRPOConfig) -> None:
    """Raise ValueError for a value that no run can train with, whatever the method."""
    for name, choices in CHOICES.items():
        _expect_choice(name, getattr(args, name), choices)
    for each in fields(args):
        value = getattr(args, each.name)
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"`{each.name}` is nan, expected a number. Correct it.")
    for name, (least, most) in LIMITS.items():
        _expect_within(name, getattr(args, name), least, most)
    if math.isinf(args.learning_rate):
        raise ValueError("`learning_rate` is inf, expected a finite number. Lower it.")
    _refuse_more_completions(args.generation_kwargs or {})


def _expect_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        nearest = get_close_matches(str(value).lower(), choices, n=1)
        suggestion = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(f"`{name}` is {value!r}, expected one of: {', '.join(choices)}.{suggestion} Correct it.")


def _expect_within(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        expected = f"at least {least}" if most == math.inf else f"a number from {least} to {most}"
        raise ValueError(f"`{name}` is {value}, expected {expected}. Correct it.")


def _refuse_more_completions(generation_kwargs: Mapping) -> None:
    for name, expected in OF_ONE_COMPLETION.items():
        got = generation_kwargs.get(name, expected)
        if got not in (expected, None):
            raise ValueError(
                f"`generation_kwargs` has {name}={got!r}, expected {expected!r}: TRL asks for one completion per row, "
                "as a tensor, and repeats each prompt `num_generations` times. Remove it, and set `num_generations`."
            )


def refuse_a_folder_that_cannot_be_written(args: GRPOConfig) -> None:
    """Raise ValueError if `output_dir` cannot be created or written. Only processes that save look."""
    folder = Path(args.output_dir).absolute()
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    if args.should_save and not writable:
        reason = "is not writable" if existing.is_dir() else "is not a folder"
        raise ValueError(
            f"`output_dir` is {args.output_dir!r}, expected a folder that can be written: {existing} {reason}. Change "
            "it, or the rights of the folder."
        )


def clamp_of_cispo(args: GRPOConfig) -> str | None:
    """What the clamp of CISPO does with an upper clip under 1, for a warning; None for any other setting."""
    bound = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type != "cispo" or bound >= 1:
        return None
    return (
        f"With loss_type='cispo', TRL clamps importance ratios to at most `epsilon_high` = {bound}, not to 1 + "
        "`epsilon_high`: at ratio 1 every gradient is multiplied by it. Set `epsilon_high` above 1, such as 5."
    )
