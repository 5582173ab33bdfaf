"""Checks at construction, or at the first batch: settings that TRL cannot train with, or that leave TEMPO no branches.

A setting with which TRL would fail later raises a ValueError. One that trains badly gives a warning on the main
process.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

import torch
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rewards.span_reward import LARGEST_REWARD
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers.zero_advantages import refuse_models_that_see_all_rows

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


logger = logging.get_logger(__name__)

# At temperature 0.1 a token that is one nat ahead is sampled e^10 = 22,026 times as often as the next. Measured on the
# demo's policy, no branch is left at temperature 0.3, top_p 0.5 or min_p 0.5; the check of the first batch finds it.
NEARLY_GREEDY_TEMPERATURE = 0.1
NEARLY_GREEDY_TOP_P = 0.1
NEARLY_GREEDY_MIN_P = 0.9


def check_settings(args: GRPOConfig) -> None:
    """Check the configuration before anything is loaded: raise or warn."""
    refuse_what_cannot_train(args)
    if args.process_index == 0:
        warn_of_sampling_without_branches(args)
        if (message := clamp_of_cispo(args)) is not None:
            warnings.warn(message, UserWarning, stacklevel=3)


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


def check_trainer(trainer: GRPOTrainer) -> None:
    """Check tokenizer, model and batch sizes of a trainer: raise or warn."""
    refuse_a_missing_end_token(trainer)
    refuse_stop_strings_that_are_not_found(trainer)
    if getattr(trainer.args, "skip_zero_advantages", False):
        refuse_models_that_see_all_rows(trainer)
    if trainer.accelerator.is_main_process:
        warn_of_saves_between_generations(trainer.args)
        warn_of_no_end_token(trainer)
        warn_of_no_room_for_prompts(trainer)
        warn_of_merging_into_half_precision(trainer)


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
            f"Sampling is {kind} ({settings}): the completions of a group will be identical, so their tree has no "
            "branches and every advantage is 0. Use a temperature such as 1.",
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


def warn_of_a_first_batch_without_branches(sums: dict[str, tuple[float, float]]) -> None:
    """Warn if the first batch, over all ranks, has no branch. This is measured, so it covers any kind of sampling."""
    if sums["branch_nodes"][0] == sums["branch_tokens"][0] == 0:
        warnings.warn(
            "The first batch has no branches: no completions of a group share a prefix and then differ, so every TD "
            "error is 0 and TEMPO is GRPO. Check whether sampling is greedy or the rollout repeats completions: see "
            "`tempo/branch_nodes` and `tempo/duplicates`, and use a temperature such as 1.",
            UserWarning,
            stacklevel=2,
        )


def refuse_less_than_a_generation(trainer: GRPOTrainer) -> None:
    """Raise ValueError if the dataset has fewer prompts than one generation: TRL drops incomplete generations."""
    rows, per_generation = trainer.train_dataset, trainer.args.generation_batch_size // trainer.num_generations
    if hasattr(rows, "__len__") and len(rows) < per_generation:
        raise ValueError(
            f"The training data have {len(rows):,} rows, expected at least the {per_generation:,} prompts of one "
            "generation. Lower `steps_per_generation` or `per_device_train_batch_size`, or use more rows."
        )


def refuse_a_run_without_a_step(trainer: GRPOTrainer) -> None:
    """Raise RuntimeError if a training run has ended without any step. Trainer only logs that, and returns."""
    if trainer.state.global_step == 0 and trainer.state.max_steps > 0:
        prompts = trainer.args.generation_batch_size // trainer.num_generations
        raise RuntimeError(
            f"Training has ended without a step, expected {trainer.state.max_steps:,}: the training data gave no "
            f"whole generation, which takes {prompts:,} prompts. Lower `steps_per_generation` or "
            "`per_device_train_batch_size`, or use more rows."
        )


def refuse_rewards_without_a_variance(rewards: torch.Tensor, weights: torch.Tensor, names: list[str]) -> None:
    """
    Raise ValueError for a reward that is infinite, or so large that float32 has no number for its square.

    Args:
        rewards (`torch.Tensor` of shape `(N, F)`):
            Rewards of the rows of all ranks, so that all ranks raise the same error. NaN means not scored.
        weights (`torch.Tensor` of shape `(F,)`):
            Weights of the functions.
        names (`list[str]`):
            Names of the functions.
    """
    weighted = rewards * weights.to(rewards.device)
    wrong = torch.maximum(rewards.abs(), weighted.abs()) > LARGEST_REWARD  # False for NaN
    if wrong.any():
        row, function = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"The reward function '{names[function]}' returned {rewards[row, function].item()} for completion {row} "
            f"of the batch of all ranks (weight {weights[function].item():g}), expected a number of at most "
            f"{LARGEST_REWARD:g} in size, or None if it cannot score the completion: one such reward would decide "
            "the advantages of its whole group. Clip the reward, or return None."
        )


def warn_of_saves_between_generations(args: GRPOConfig) -> None:
    micro_batches = args.steps_per_generation * args.num_iterations  # from one generation to the next
    saved_every = args.save_steps * args.gradient_accumulation_steps
    if args.save_strategy == "steps" and args.save_steps >= 1 and saved_every % micro_batches:
        warnings.warn(
            f"save_steps={args.save_steps} saves between two generations. A run resumed from there discards the "
            "current completions and samples new ones, so it differs from the original. For an exact resume make "
            "save_steps * gradient_accumulation_steps a multiple of steps_per_generation * num_iterations = "
            f"{micro_batches}.",
            UserWarning,
            stacklevel=4,
        )


def warn_of_what_was_not_saved(file: Path) -> None:
    """Warn that a checkpoint lacks the method's learned state."""
    warnings.warn(
        f"{file.parent} has no {file.name}: it was saved by another trainer, or by an earlier version with "
        "`save_only_model`. The run continues, but learns how its rewards vary from the beginning. To keep what was "
        "learned, resume from a checkpoint with this state.",
        UserWarning,
        stacklevel=2,
    )


def refuse_a_missing_end_token(trainer: GRPOTrainer) -> None:
    """Raise ValueError if the tokenizer lacks a token that TRL needs.

    TRL pads with the padding token, or with EOS if there is none, and stops generation at the tokenizer's EOS.
    """
    tokenizer = trainer._tokenizer
    ours = trainer.rollout_func is None or isinstance(trainer.rollout_func, TreeRollout)
    generates = ours and not trainer.use_vllm
    if tokenizer.pad_token_id is None or (generates and tokenizer.eos_token_id is None):
        raise ValueError(
            f"The tokenizer must have an end-of-sequence token, got eos_token={tokenizer.eos_token} and "
            f"pad_token={tokenizer.pad_token}: without it TRL fails at the first batch. Set `eos_token` of the "
            "tokenizer to the token that ends the model's answers, and pass the tokenizer as `processing_class`."
        )


def refuse_stop_strings_that_are_not_found(trainer: GRPOTrainer) -> None:
    """Raise ValueError for stop strings where TRL samples with transformers, without the tokenizer that finds them.

    Trees are grown with the tokenizer, but evaluation does not grow trees.
    """
    args, stops = trainer.args, (trainer.args.generation_kwargs or {}).get("stop_strings")
    grows, evaluates = isinstance(trainer.rollout_func, TreeRollout), args.eval_strategy != "no" or args.eval_on_start
    if stops and not trainer.use_vllm and (evaluates if grows else trainer.rollout_func is None):
        instead = "Set eval_strategy='no'" if grows else "Grow trees (such as rollout='fixed')"
        raise ValueError(
            f"`generation_kwargs` has stop_strings={stops!r}, which TRL cannot find {'in evaluation ' * grows}when it "
            f"samples with transformers: it does not pass the tokenizer to `generate`. {instead}, use vLLM with "
            "generation_kwargs={'stop': ...}, or remove `stop_strings`."
        )


def warn_of_no_end_token(trainer: GRPOTrainer) -> None:
    if set(trainer.eos_token_ids) == {None}:
        warnings.warn(
            "Neither the tokenizer nor the generation config has an end-of-sequence token. Completions continue to "
            "max_completion_length unless the rollout ends them, and all count as truncated, so "
            "`mask_truncated_completions` would mask every token. Set `eos_token` of the tokenizer.",
            UserWarning,
            stacklevel=4,
        )


def room_for_prompts(trainer: GRPOTrainer) -> int | None:
    """Length of the context minus `max_completion_length`; None if the context has no known limit.

    The context is that of colocated vLLM (`vllm_max_model_length`), or the model's (`max_position_embeddings`). A vLLM
    server may have a shorter one, and rejects longer requests itself.
    """
    args = trainer.args
    colocated = args.vllm_max_model_length if args.use_vllm and args.vllm_mode == "colocate" else None
    context = colocated or getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    return None if context is None else context - (args.max_completion_length or 0)


def warn_of_no_room_for_prompts(trainer: GRPOTrainer) -> None:
    room = room_for_prompts(trainer)
    if room is not None and room <= 0:
        longest = trainer.args.max_completion_length
        warnings.warn(
            f"max_completion_length={longest} leaves no room for a prompt in the model's context of {room + longest} "
            "tokens. Lower it, or use a model (or `vllm_max_model_length`) with a longer context.",
            UserWarning,
            stacklevel=4,
        )


def check_prompts(prompt_ids: Sequence[Sequence[int]], trainer: GRPOTrainer) -> None:
    """Raise ValueError for a prompt without tokens. Warn once of one that is longer than the room for prompts."""
    lengths = list(map(len, prompt_ids))
    if 0 in lengths:
        raise ValueError(
            f"The prompt in row {lengths.index(0)} has no tokens, expected at least one. Drop the row, or begin the "
            "prompt with a token, such as that of the beginning of a sequence."
        )
    warn_of_long_prompts(max(lengths, default=0), room_for_prompts(trainer))


def warn_of_long_prompts(longest: int, room: int | None) -> None:
    """Warn once if a prompt is longer than `room` tokens."""
    if room is not None and longest > room:
        logger.warning_once(
            f"A prompt is longer than the {room} tokens that max_completion_length leaves in the model's context. "
            "Beyond the context, learned position embeddings fail, rotary ones lose quality, and vLLM rejects or "
            "truncates requests. Drop longer prompts from the dataset (`dataset.filter`), lower max_completion_length "
            "or use a model with a longer context. This warning is given once."
        )


def warn_of_merging_into_half_precision(trainer: GRPOTrainer) -> None:
    """Warn if adapters are merged into half-precision weights, which accumulates rounding errors.

    Before each generation TRL merges adapters into the weights for vLLM, then unmerges them. In bf16 both are rounded.
    In 230 generations the frozen weights change by about a fifth of the adapter's own update (tests/test_recipes.py),
    and checkpoints of the adapter do not contain that change.
    """
    is_adapted = hasattr(trainer.model, "merge_adapter")
    dtypes = {parameter.dtype for parameter in trainer.model.parameters() if not parameter.requires_grad}
    if trainer.use_vllm and is_adapted and dtypes & {torch.bfloat16, torch.float16}:
        warnings.warn(
            "Adapters are trained on half-precision weights with vLLM. TRL merges and unmerges them at each "
            "generation, and rounding changes the frozen weights a little every time. Load the model with "
            "`dtype: float32` (`bf16: true` still computes in bf16), or sample without vLLM.",
            UserWarning,
            stacklevel=4,
        )
