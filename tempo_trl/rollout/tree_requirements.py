"""Check that a run's completions can be grown as trees."""

from collections.abc import Iterator

from trl import GRPOConfig, GRPOTrainer

from tempo_trl.adapters import WHAT_THEY_DO, adapts_rows
from tempo_trl.rollout.growth import Grower

# Trees are generated in segments. These options act on a token and all that is before it; others count from the first
# generated token, which would be that of each segment, or do not generate one sampled continuation.
SUPPORTED = {
    False: (  # transformers
        "do_sample temperature top_k top_p top_h min_p typical_p epsilon_cutoff eta_cutoff repetition_penalty "
        "bad_words_ids sequence_bias suppress_tokens renormalize_logits remove_invalid_values "
        "bos_token_id eos_token_id pad_token_id stop_strings use_cache cache_implementation disable_compile"
    ),
    True: (  # vLLM
        "temperature top_k top_p min_p repetition_penalty logit_bias allowed_token_ids seed stop "
        "stop_token_ids ignore_eos include_stop_str_in_output skip_special_tokens"
    ),
}

# Options in a model's own generation configuration without an effect here: TRL sets the maximum length, and one
# continuation is sampled, without an assistant.
WITHOUT_EFFECT = (
    "max_length max_new_tokens early_stopping length_penalty decoder_start_token_id is_assistant num_assistant_tokens "
    "num_assistant_tokens_schedule assistant_confidence_threshold assistant_lookbehind target_lookbehind "
    "return_dict_in_generate output_attentions output_hidden_states output_scores output_logits transformers_version "
    "_from_model_config"
)

# Layers that transformers continues from the cache of prefixes of several lengths, as from those of one. Those with an
# index of keys do not: their log-probabilities were off by 0.6 nats.
CONTINUED = {"full_attention", "sliding_attention", "linear_attention", "hybrid", "conv", "moe", "mlp"}


def check_trees_can_grow(args: GRPOConfig, grower: Grower | None = None, trainer: GRPOTrainer | None = None) -> None:
    """
    Raise ValueError if the run has options that tree rollouts do not support.

    Args:
        args ([`~trl.GRPOConfig`]):
            Its configuration.
        grower ([`~tempo_trl.rollout.growth.Grower`], *optional*):
            The grower, whose number of leaves must be the size of a group.
        trainer ([`~trl.GRPOTrainer`], *optional*):
            Its trainer, of which more can be checked.

    Raises:
        ValueError: if something is not supported; the message says what to change.
    """
    problems = list(_problems_of_args(args, grower))
    if trainer is not None:
        problems += _problems_of_trainer(trainer)
    if problems:
        raise ValueError("Tree rollouts are not supported here. " + " ".join(problems))


def _problems_of_args(args: GRPOConfig, grower: Grower | None) -> Iterator[str]:
    if args.use_vllm and args.vllm_mode != "server":
        yield f"Trees need a vLLM server, got vllm_mode={args.vllm_mode!r}. Set vllm_mode='server'."
    if args.use_vllm and args.vllm_structured_outputs_regex is not None:
        yield "A regular expression would restart in every segment. Unset `vllm_structured_outputs_regex`."
    if args.use_transformers_continuous_batching:
        yield "Trees are sampled by plain `generate`. Unset `use_transformers_continuous_batching`."
    stops = {"stop", "stop_strings"} & set(args.generation_kwargs or ())
    if stops and args.mask_truncated_completions:
        yield "TRL counts completions that end at a stop string as truncated. Set mask_truncated_completions=False."
    if args.max_completion_length is None:
        yield "Trees need a maximum length, got None. Set `max_completion_length`."
    supported = SUPPORTED[args.use_vllm].split()
    if refused := sorted(set(args.generation_kwargs or ()) - set(supported)):
        yield (
            f"Trees are generated in segments, got generation_kwargs {refused}, expected some of "
            f"{', '.join(supported)}. Remove the others."
        )
    group = args.num_generations
    if grower is not None and grower.num_generations != group:
        yield f"The grower needs num_generations={grower.num_generations}, got {group}. Set it to that."
    per_device, steps = args.per_device_train_batch_size, args.steps_per_generation
    if per_device * steps % group:
        yield (
            "A tree is grown on one rank, so per_device_train_batch_size * steps_per_generation must be a multiple "
            f"of num_generations, but {per_device} * {steps} = {per_device * steps} is not a multiple of {group}."
        )


def _problems_of_trainer(trainer: GRPOTrainer) -> Iterator[str]:
    if trainer.tools or trainer.environment_factories:
        yield "Tools and environments insert tokens into completions. Remove `tools` and `environment_factory`."
    kinds = {*(getattr(trainer.model.config.get_text_config(), "layer_types", None) or ())}
    if not trainer.use_vllm and (kinds == {"linear_attention"} or kinds - CONTINUED):
        yield (
            f"Prefixes cannot be continued with layers of {', '.join(sorted(kinds))}: the cache must have attention, "
            f"and layers be some of {', '.join(sorted(CONTINUED))}. Use another model, or vLLM."
        )
    if not trainer.use_vllm and adapts_rows(trainer.accelerator.unwrap_model(trainer.model)):
        yield f"The adapter {WHAT_THEY_DO}, and segments are parts of rows. Use another one, such as LoRA."
    if not trainer.use_vllm and (own := _options_of_the_model(trainer)):
        yield (
            f"Trees are generated in segments, got {', '.join(own)} in the model's own `generation_config`, expected "
            "what is supported in generation_kwargs. Set it to None there."
        )
    if trainer._is_vlm:
        yield "Trees support text only. Pass a tokenizer as `processing_class` instead of a processor."


def _options_of_the_model(trainer: GRPOTrainer) -> list[str]:
    """Names of options that `generate` takes from the model where TRL sets none, and which trees do not support."""
    own = trainer.accelerator.unwrap_model(trainer.model).generation_config
    neutral, given = own._get_default_generation_params(), vars(trainer.generation_config)
    known = {*SUPPORTED[False].split(), *WITHOUT_EFFECT.split()}
    asked = {name for name, value in vars(own).items() if value is not None and value != neutral.get(name)}
    return sorted(name for name in asked - known if given.get(name, "no option of transformers") is None)
