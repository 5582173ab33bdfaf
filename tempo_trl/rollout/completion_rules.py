"""The rules by which a completion of a trainer ends, for any sampler."""

from trl import GRPOTrainer

from tempo_trl.rollout.growth import Rules


def rules_of(trainer: GRPOTrainer) -> Rules:
    """The rules for completions of this trainer: when they end, and whether sampling is greedy."""
    options = trainer.args.generation_kwargs or {}
    stop_strings = options.get("stop" if trainer.use_vllm else "stop_strings") or ()
    return Rules(
        max_tokens=trainer.max_completion_length,
        eos_token_ids=tuple(end_token_ids(trainer)),
        stop_strings=(stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings),
        tokenizer=trainer._tokenizer,
        greedy=not options.get("do_sample", True) or options.get("temperature", trainer.temperature) == 0,
    )


def end_token_ids(trainer: GRPOTrainer) -> set[int]:
    """Tokens that end a completion: the trainer's, and those that `generation_kwargs` adds."""
    options = trainer.args.generation_kwargs or {}
    if trainer.use_vllm:
        own = () if options.get("ignore_eos") else trainer.eos_token_ids
        return {*own, *(options.get("stop_token_ids") or ())}
    given = options.get("eos_token_id")
    return {*trainer.eos_token_ids, *([given] if isinstance(given, int) else given or ())}
