"""What a trainer is given, checked when it is built and at its batches: tokenizer, data and rewards."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from trl import GRPOTrainer

from tempo_trl.rewards.span_reward import LARGEST_REWARD
from tempo_trl.rollout.tree_rollout import TreeRollout

OF_TRL = {"prompts", "completions", "trainer_state", "log_extra", "log_metric"}  # what it passes to reward functions


def warn_of_a_first_batch_without_branches(sums: dict[str, tuple[float, float]], method: str) -> None:
    """Warn if the first batch, over all ranks, has no branch. This is measured, so it covers any kind of sampling."""
    if sums["tempo/branch_nodes"][0] == sums["tempo/branch_tokens"][0] == 0:
        warnings.warn(
            "The first batch has no branches: no two completions of the same prompt part at a token, so "
            f"{method} adds nothing to GRPO's advantage. Check whether sampling is greedy, the rollout repeats "
            "completions (`tempo/duplicates`), or an environment gives each completion of a group another prompt.",
            UserWarning,
            stacklevel=2,
        )


def refuse_a_run_without_a_step(trainer: GRPOTrainer) -> None:
    """Raise RuntimeError if a training run has ended without any micro-batch. Trainer only logs that, and returns."""
    if trainer.state.global_step == trainer._step == 0 and trainer.state.max_steps > 0:
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


def refuse_a_loss_without_ours(name: str) -> None:
    """Raise ValueError for a subclass whose loss leaves ours out, before its first optimizer step."""
    raise ValueError(
        f"{name} has a loss that does not call `super()._compute_loss(model, inputs)`, but its batches have one "
        "advantage for each token, `(B, T)`: a loss for one advantage per completion would train something else. Call "
        "it, or override `_loss(model, inputs, compute_loss)`, in which `compute_loss(model, inputs)` is TRL's loss."
    )


def warn_of_what_was_not_saved(file: Path) -> None:
    """Warn that a checkpoint lacks the method's learned state."""
    warnings.warn(
        f"{file.parent} has no {file.name}: it was saved by another trainer. The run continues, but what credit "
        "learned starts from nothing. To keep it, resume from a checkpoint with this state.",
        UserWarning,
        stacklevel=2,
    )


def refuse_a_missing_reference(file: Path) -> None:
    """Raise ValueError if a checkpoint lacks the reference model, which `sync_ref_model` has moved."""
    if not file.exists():
        raise ValueError(
            f"{file.parent} has no {file.name}, expected the reference model of sync_ref_model=True: it was saved by "
            "another trainer, or under DeepSpeed or FSDP, where it is not saved. A resumed run would take its KL to "
            "the first weights. Set sync_ref_model=False, or start a new run whose model is the checkpoint."
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


def refuse_one_seed_for_single_completions(trainer: GRPOTrainer) -> None:
    """Raise ValueError for a `seed` of vLLM where TRL asks for one completion at a time: each would have it."""
    args, of_agents = trainer.args, bool(trainer.tools or trainer.environment_factories)
    seed = (args.generation_kwargs or {}).get("seed")
    if args.use_vllm and seed is not None and (of_agents or args.vllm_mode == "colocate"):
        where = "in the turns of an agent" if of_agents else "with vllm_mode='colocate'"
        raise ValueError(
            f"`generation_kwargs` has seed={seed!r}, expected none: {where} TRL asks vLLM for one completion at a "
            "time, each with this seed, so that completions which are equal so far go on alike. Remove it."
        )


def refuse_tools_without_a_length(trainer: GRPOTrainer) -> None:
    """Raise ValueError for tools without `max_completion_length`, with which TRL compares what they answer."""
    if trainer.max_completion_length is None and trainer.tools:  # those of environments among them
        raise ValueError("`max_completion_length` is None, expected a number with tools. Set it.")


def refuse_columns(columns: Iterable[str], have_texts: bool) -> None:
    """Raise ValueError for a column whose name is that of something else that reward functions get, maybe `texts`."""
    if taken := (OF_TRL | ({"texts"} if have_texts else set())) & {*columns}:
        raise ValueError(
            f"the dataset has a column {min(taken)!r}, but reward functions get something else by this name. Rename "
            "or remove it."
        )
