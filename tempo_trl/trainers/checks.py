"""What a trainer is given, checked when it is built and at its batches: model, tokenizer, data, prompts and rewards.

What TRL would fail at later raises an error. What trains badly gives a warning on the main process.
"""

import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from datasets import Dataset, IterableDataset
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rewards.span_reward import LARGEST_REWARD
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers.zero_advantages import refuse_models_that_see_all_rows

logger = logging.get_logger(__name__)


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


def warn_of_a_first_batch_without_branches(sums: dict[str, tuple[float, float]], method: str) -> None:
    """Warn if the first batch, over all ranks, has no branch. This is measured, so it covers any kind of sampling."""
    if sums["branch_nodes"][0] == sums["branch_tokens"][0] == 0:
        warnings.warn(
            "The first batch has no branches: no two completions of a group differ but by where they end, so "
            f"{method} adds nothing to GRPO's advantage. Check whether sampling is greedy or the rollout repeats "
            "completions: see `tempo/branch_nodes` and `tempo/duplicates`, and use a temperature such as 1.",
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


@contextmanager
def watch_rewards(seconds: float, rank: int, names: list[str]) -> Iterator[None]:
    """Log the stack of this rank once if the block takes longer than `seconds`.

    If a reward function hangs on one rank, the others wait in a collective. After `ddp_timeout` that fails with a
    message that names neither the rank nor the function.
    """
    timer = threading.Timer(seconds, _log_position, (threading.get_ident(), seconds, rank, names))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _log_position(thread: int, seconds: float, rank: int, names: list[str]) -> None:
    stack = traceback.extract_stack(sys._current_frames()[thread])
    start = max((i for i, frame in enumerate(stack) if frame.name == "_calculate_rewards"), default=0)
    logger.warning(
        f"Rank {rank} has spent {seconds:g} s on the rewards of one batch ({', '.join(names)}). If a reward function "
        "hangs on one rank, the other ranks time out after ddp_timeout and the run ends. Stack of this rank:\n"
        + "".join(traceback.format_list(stack[start:]))
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


def check_columns(dataset: Dataset | IterableDataset | None, may_lack_prompts: bool) -> None:
    """Raise ValueError for a dataset without prompts, or with a column that reward functions get from TRL itself."""
    columns = getattr(dataset, "column_names", None)  # unknown for some streams
    if columns is None:
        return
    if "prompt" not in columns and not may_lack_prompts:
        raise ValueError(f"the dataset has no column 'prompt', only {', '.join(columns)}. Rename one, or add it.")
    if taken := {"prompts", "completions", "trainer_state", "log_extra", "log_metric"} & {*columns}:
        raise ValueError(
            f"the dataset has a column {min(taken)!r}, but TRL passes something else to reward functions by this "
            "name. Rename or remove the column."
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
