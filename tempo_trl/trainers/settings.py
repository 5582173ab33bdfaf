"""What a configuration may say: before anything is loaded, a value that no run can train with raises ValueError."""

from math import inf

from trl import GRPOConfig

from tempo_trl.credit.checks import refuse

COUNTS = (
    *("max_completion_length", "num_iterations", "per_device_train_batch_size", "generation_batch_size"),
    *("gradient_accumulation_steps", "steps_per_generation"),
)
# What every run reads. Outside of these it divides by zero, fails in the first loss, or trains nothing.
RANGES = dict.fromkeys(COUNTS, (1, inf)) | {
    "num_generations": (2, inf),
    **dict.fromkeys(("epsilon", "epsilon_high", "dataloader_num_workers"), (0, inf)),
    "top_entropy_quantile": (0, 1),
    "seed": (0, 2**32 - 1),
}
CHOICES = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),  # TRL asks in the loss, where ours is another
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
# In `generation_kwargs`: more than one completion per prompt, or no tensor. TRL repeats the prompts itself.
OF_ONE_COMPLETION = {"num_return_sequences": 1, "n": 1, "return_dict_in_generate": False}


def checked_config(args: GRPOConfig | None, config_cls: type[GRPOConfig], model_name: str, method: str) -> GRPOConfig:
    """
    The configuration of a run, or the default one for a model and a method.

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
    refuse_what_cannot_train(args)
    args.check()  # again, because fields can be set after the configuration was created
    return args


def refuse_what_is_out_of_range(args: GRPOConfig) -> None:
    """Raise ValueError for a number out of its range. TRL divides by some of them when it builds the configuration."""
    for name, (low, high) in RANGES.items():
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            expected = f"at least {low}" if high == inf else f"between {low} and {high}"
            raise ValueError(f"`{name}` is {value}, expected {expected}. Correct it.")


def refuse_what_cannot_train(args: GRPOConfig) -> None:
    """Raise ValueError for values with which no method can train. TRL itself rejects `num_generations` below 2."""
    refuse_what_is_out_of_range(args)
    for name, choices in CHOICES.items():
        value = getattr(args, name)
        if value not in choices:
            raise ValueError(f"`{name}` is {value!r}, expected one of: {', '.join(choices)}. Correct it.")
    for name, value in vars(args).items():
        if value != value:
            raise ValueError(f"`{name}` is nan, expected a number. Correct it.")
    sampled = args.per_device_train_batch_size * args.world_size * args.steps_per_generation
    if args.generation_batch_size != sampled:
        raise ValueError(
            f"`generation_batch_size` is {args.generation_batch_size}, expected per_device_train_batch_size x "
            f"processes x steps_per_generation = {sampled}: TRL derives it when a configuration is built, and would "
            "leave out prompts. Build a new configuration instead of changing one of these."
        )
    if args.max_completion_length is None and args.loss_type == "dr_grpo":
        raise ValueError("`max_completion_length` is None, expected a number: dr_grpo's loss divides by it. Set it.")
    if not 0 < args.temperature < inf:
        raise ValueError(
            f"`temperature` must be above 0 and finite, got {args.temperature}: the loss divides the logits by it. "
            "Use 1, for example: greedy completions of a group are identical, so nothing can be learned from them."
        )
    generation = args.generation_kwargs or {}
    for name, expected in OF_ONE_COMPLETION.items():
        got = generation.get(name, expected)
        if got not in (expected, None):
            raise ValueError(
                f"`generation_kwargs` has {name}={got!r}, expected {expected!r}: TRL asks for one completion per row, "
                "as a tensor, and repeats each prompt `num_generations` times. Remove it, and set `num_generations`."
            )
    if generation.get("temperature", args.temperature) != args.temperature:
        raise ValueError(
            f"`generation_kwargs` has temperature={generation['temperature']!r}, expected {args.temperature!r}: the "
            "loss divides the logits by the field `temperature`. Set that instead."
        )
    stops = generation.get("stop") or generation.get("stop_strings")
    if stops and args.mask_truncated_completions:
        raise ValueError(
            f"`mask_truncated_completions` is True and `generation_kwargs` stops at {stops!r}, expected one of the "
            "two: TRL takes only completions that end with an end token as complete, and would leave those that end "
            "at a stop string out of the loss. Set mask_truncated_completions=False, or remove the stop strings."
        )


def refuse_rewards_that_are_normalized_first(args: GRPOConfig, method: str) -> None:
    """Raise ValueError for "normalize_then_sum". `method` says what the method does with the weighted sum instead."""
    why = f"it normalizes rewards within groups, but {method}. Leave it unset"
    refuse(args, {"multi_objective_aggregation": (args.multi_objective_aggregation != "sum_then_normalize", why)})
