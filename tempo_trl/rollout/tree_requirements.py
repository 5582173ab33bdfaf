"""What a run must have, and must not have, for its completions to be grown as trees."""

from collections.abc import Iterator

from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.growth import Grower

# Options that count from the first token that is generated, which would be each piece's instead of the completion's,
# or that generate something else than one sampled continuation.
OF_WHOLE_COMPLETIONS = {
    False: (  # transformers
        "begin_suppress_tokens",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "guidance_scale",
        "max_length",
        "max_new_tokens",
        "max_time",
        "min_length",
        "min_new_tokens",
        "num_beams",
        "num_return_sequences",
        "penalty_alpha",
        "prompt_lookup_num_tokens",
    ),
    True: (  # vLLM
        "best_of",
        "echo",
        "frequency_penalty",
        "logprobs",
        "max_tokens",
        "min_tokens",
        "n",
        "presence_penalty",
        "prompt_logprobs",
        "response_format",
        "stream",
        "structured_outputs",
        "use_beam_search",
    ),
}


def check_trees_can_grow(args_or_trainer: GRPOConfig | GRPOTrainer, grower: Grower | None = None) -> None:
    """
    Refuse what trees cannot be grown with. For a configuration what it tells, for a trainer everything.

    Args:
        args_or_trainer ([`~trl.GRPOConfig`] or [`~trl.GRPOTrainer`]):
            The run.
        grower ([`~tempo_trl.rollout.growth.Grower`], *optional*):
            What grows: a group has to have its size.

    Raises:
        ValueError: with what to change.
    """
    trainer = args_or_trainer if isinstance(args_or_trainer, GRPOTrainer) else None
    args = args_or_trainer if trainer is None else trainer.args
    problems = [*_problems_of_args(args), *_problems_of_groups(args, grower)]
    if trainer is not None:
        problems += _problems_of_trainer(trainer)
    if problems:
        raise ValueError("Trees cannot be grown here. " + " ".join(problems))


def _problems_of_args(args: GRPOConfig) -> Iterator[str]:
    if args.use_transformers_continuous_batching:
        yield "Continuous batching keeps no cache to continue from: unset `use_transformers_continuous_batching`."
    if args.use_vllm and args.vllm_mode != "server":
        yield f"vLLM grows trees as a server: set vllm_mode='server', got {args.vllm_mode!r}."
    if args.use_vllm and args.vllm_structured_outputs_regex is not None:
        yield "A regular expression would begin anew in every segment: unset `vllm_structured_outputs_regex`."
    if args.max_completion_length is None:
        yield "A tree needs to know how long it may grow: set `max_completion_length`."
    options = args.generation_kwargs or {}
    if refused := sorted(set(options) & set(OF_WHOLE_COMPLETIONS[args.use_vllm])):
        yield (
            f"generation_kwargs {refused} apply to a whole completion, or to something else than one sampled "
            "continuation; a tree's are generated in pieces: leave them out."
        )


def _problems_of_groups(args: GRPOConfig, grower: Grower | None) -> Iterator[str]:
    group = args.num_generations
    if grower is not None and grower.num_generations != group:
        yield f"The grower fills groups of {grower.num_generations}: set num_generations to that, got {group}."
    per_device, steps = args.per_device_train_batch_size, args.steps_per_generation
    if per_device * steps % group:
        yield (
            "A tree is grown on one rank, so per_device_train_batch_size * steps_per_generation must be a multiple "
            f"of num_generations: {per_device} * {steps} = {per_device * steps} is not a multiple of {group}."
        )


def _problems_of_trainer(trainer: GRPOTrainer) -> Iterator[str]:
    if trainer.tools or trainer.environment_factories:
        yield "Tools and environments write into a completion: leave out `tools` and `environment_factory`."
    if trainer._is_vlm:
        yield "Trees are grown for text only: give a tokenizer as `processing_class` instead of a processor."
