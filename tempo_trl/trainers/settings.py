"""What a configuration may say: before anything is loaded, a value that no run can train with raises ValueError.

One that trains badly gives a warning on the main process.
"""

import math
import os
import warnings
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
# At temperature 0.1 a token that is one nat ahead is sampled e^10 = 22,026 times as often as the next. Measured on the
# demo's policy, no branch is left at temperature 0.3, top_p 0.5 or min_p 0.5; the check of the first batch finds it.
NEARLY_GREEDY_TEMPERATURE = 0.1
NEARLY_GREEDY_TOP_P = 0.1
NEARLY_GREEDY_MIN_P = 0.9


def checked_config(args: GRPOConfig | None, config_cls: type[GRPOConfig], model_name: str, method: str) -> GRPOConfig:
    """
    The configuration of a run, or the default one for a model and a method. Raises ValueError, or warns.

    Args:
        args ([`~trl.GRPOConfig`], *optional*): What the user passed.
        config_cls (`type`): What it must be. Its method `check()` raises ValueError for invalid settings.
        model_name, method (`str`): They are the default `output_dir`.
    """
    if args is None:
        args = config_cls(f"{model_name.split('/')[-1]}-{method.replace('_', '-')}")
    if not isinstance(args, config_cls):
        raise ValueError(
            f"`args` must be a {config_cls.__name__}, got {type(args).__name__}. Create a {config_cls.__name__} "
            "instead: it has every field of GRPOConfig."
        )
    check_settings(args)
    args.check()  # again, because fields can be set after the configuration was created
    return args


def check_settings(args: GRPOConfig) -> None:
    """Check the configuration before anything is loaded: raise or warn."""
    refuse_what_cannot_train(args)
    if args.process_index == 0:
        warn_of_sampling_without_branches(args)
        if (message := clamp_of_cispo(args)) is not None:
            warnings.warn(message, UserWarning, stacklevel=3)


def refuse_what_cannot_train(args: GRPOConfig) -> None:
    """Raise ValueError for values with which TRL cannot train.

    TRL itself rejects `num_generations` below 2. A group of 1 is allowed in evaluation, which does not need a tree.
    """
    refuse_wrong_values(args)
    refuse_a_folder_that_cannot_be_written(args)
    if args.temperature <= 0:
        raise ValueError(
            f"`temperature` must be above 0, got {args.temperature}: the loss divides the logits by it. Use 1, for "
            "example: greedy completions of a group are identical, so nothing can be learned from them."
        )
    if args.max_completion_length is not None and args.max_completion_length < 1:
        raise ValueError(f"`max_completion_length` must be at least 1, got {args.max_completion_length}. Raise it.")
    if (args.num_generations_eval or 1) < 1:
        raise ValueError(
            f"`num_generations_eval` must be at least 1, got {args.num_generations_eval}. Raise it, or leave it unset "
            "to use num_generations."
        )


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


def refuse_rewards_that_are_normalized_first(args: GRPOConfig, method: str) -> None:
    """Raise ValueError for "normalize_then_sum". `method` says what the method does with the weighted sum instead."""
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise ValueError(
            f"`multi_objective_aggregation` is {args.multi_objective_aggregation!r}, expected 'sum_then_normalize': "
            f"it normalizes rewards within groups, but {method}. Leave it unset."
        )


def warn_of_sampling_without_branches(args: GRPOConfig) -> None:
    names = ("temperature", "top_k", "top_p", "min_p")
    sampling = {name: getattr(args, name) for name in names} | (args.generation_kwargs or {})
    greedy = {"temperature": 0, "top_k": 1, "top_p": 0, "do_sample": False}
    reasons, kind = [name for name, value in greedy.items() if sampling.get(name) == value], "greedy"
    if not reasons:
        reasons, kind = _nearly_greedy(sampling), "nearly greedy"
    if reasons:
        settings = ", ".join(f"{name}={sampling[name]}" for name in reasons)
        warnings.warn(
            f"Sampling is {kind} ({settings}): the completions of a group will be identical, so nothing can be "
            "learned from comparing them. Use a temperature such as 1.",
            UserWarning,
            stacklevel=4,
        )


def _nearly_greedy(sampling: dict) -> list[str]:
    """Names of the settings with which almost only the most likely token is sampled."""
    temperature, top_p, min_p = (sampling[name] for name in ("temperature", "top_p", "min_p"))
    found = {
        "temperature": temperature is not None and temperature <= NEARLY_GREEDY_TEMPERATURE,
        "top_p": top_p is not None and top_p <= NEARLY_GREEDY_TOP_P,
        "min_p": min_p is not None and min_p >= NEARLY_GREEDY_MIN_P,
    }
    return [name for name, is_greedy in found.items() if is_greedy]


def clamp_of_cispo(args: GRPOConfig) -> str | None:
    """What the clamp of CISPO does with an upper clip under 1, for a warning; None for any other setting."""
    bound = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type != "cispo" or bound >= 1:
        return None
    return (
        f"With loss_type='cispo', TRL clamps importance ratios to at most `epsilon_high` = {bound}, not to 1 + "
        "`epsilon_high`: at ratio 1 every gradient is multiplied by it. Set `epsilon_high` above 1, such as 5."
    )
