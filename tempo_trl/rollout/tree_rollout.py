"""Grown trees in TRL: the object for `GRPOTrainer`'s `rollout_func`, and what it cannot go with."""

import contextlib
from collections.abc import Iterator

import torch
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.growth import Grower, Rules, Sampler, grow
from tempo_trl.rollout.transformers_sampler import transformers_sampler
from tempo_trl.rollout.tree import GrownTree

# Options that count from the first token that is generated, which would be each piece's instead of the completion's,
# or that generate something else than one sampled continuation.
_OF_WHOLE_COMPLETIONS = {
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


class TreeRollout:
    """
    Grows the completions of training as trees: `GRPOTrainer(..., rollout_func=TreeRollout(grower))`.

    In evaluation completions are sampled independently by TRL's own code, so that accuracy means what it means for
    every other method.

    Args:
        grower ([`~tempo_trl.rollout.growth.Grower`]):
            [`~tempo_trl.rollout.fixed.FixedTree`] or [`~tempo_trl.rollout.entropy.EntropyTree`].

    Attributes:
        trees (`list[GrownTree]`, *optional*):
            What the last call grew on this rank, one tree a group, in the order of the completions; None after a call
            in evaluation.

    Raises:
        ValueError: at the first call, see [`check_trees_can_grow`].
        RuntimeError: if a rank is given something else than whole groups.
    """

    def __init__(self, grower: Grower):
        self.grower = grower
        self.trees: list[GrownTree] | None = None
        self._checked = False

    def __call__(self, prompts: list, trainer: GRPOTrainer) -> dict[str, list]:
        """Prompts of this rank, one a completion, as TRL's rollout: `prompt_ids`, `completion_ids`, `logprobs`."""
        if not self._checked:
            check_trees_can_grow(trainer, self.grower)
            self._checked = True
        prompt_ids, images, _ = trainer._tokenize_prompts(prompts)
        if images is not None:
            raise ValueError("Trees are grown for prompts of text only: these have images.")
        if not trainer.model.training:
            self.trees = None
            completion_ids, logprobs = trainer._generate_single_turn(
                prompt_ids, None, {}, trainer.num_generations_eval
            )
        else:
            self.trees = self._grow(_one_a_group(prompts, prompt_ids, self.grower.num_generations), trainer)
            completion_ids, logprobs = self._completions(trainer)
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs}

    def _grow(self, prompts: list[list[int]], trainer: GRPOTrainer) -> list[GrownTree]:
        def anywhere(condition: bool) -> bool:
            ranks = torch.tensor(int(condition), device=trainer.accelerator.device)
            return trainer.accelerator.reduce(ranks, reduction="sum").item() > 0

        with _sampler(trainer) as sampler:
            return grow(self.grower, prompts, rules_of(trainer), sampler, anywhere)

    def _completions(self, trainer: GRPOTrainer) -> tuple[list, list | None]:
        rows = [(tree, leaf) for tree in self.trees for leaf in tree.rows]
        completion_ids = [tree.completion_ids(leaf) for tree, leaf in rows]
        if not trainer.use_vllm:  # as on TRL's own path: the trainer's forward pass is the sampler
            return completion_ids, None
        return completion_ids, [tree.logprobs(leaf) for tree, leaf in rows]

    def statistics(self) -> dict[str, tuple[float, float]]:
        """
        What the last call grew on this rank, as (sum, count): a mean over all ranks is the ratio of their totals.

        - `generated_tokens`: tokens of a tree, a shared one once.
        - `generated_share`: tokens that were generated, of those that the completions hold.
        - `leaves`: distinct completions of a tree.
        - `depth`: segments on the way to a leaf.
        - `forced_tokens`: tokens of a tree that were chosen instead of sampled.
        - `repeated_rows`: share of the completions that repeat another's leaf.
        """
        trees = self.trees or []
        leaves = [(tree, leaf) for tree in trees for leaf in tree.leaves()]
        rows = [(tree, leaf) for tree in trees for leaf in tree.rows]
        tokens = sum(tree.num_tokens() for tree in trees)
        return {
            "generated_tokens": (tokens, len(trees)),
            "generated_share": (tokens, sum(len(tree.completion_ids(leaf)) for tree, leaf in rows)),
            "leaves": (len(leaves), len(trees)),
            "depth": (sum(len(tree.path(leaf)) for tree, leaf in leaves), len(leaves)),
            "forced_tokens": (sum(segment.forced for tree in trees for segment in tree.segments), len(trees)),
            "repeated_rows": (len(rows) - len(leaves), len(rows)),
        }


@contextlib.contextmanager
def _sampler(trainer: GRPOTrainer) -> Iterator[Sampler]:
    if trainer.use_vllm:
        from tempo_trl.rollout.vllm_sampler import VLLMSampler

        yield VLLMSampler(trainer)
    else:
        with transformers_sampler(trainer) as sampler:
            yield sampler


def rules_of(trainer: GRPOTrainer) -> Rules:
    """When a completion of this trainer ends, and whether its tokens are drawn."""
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
    """Tokens that end a completion: the trainer's, and those that `generation_kwargs` adds for its sampler."""
    options = trainer.args.generation_kwargs or {}
    if trainer.use_vllm:
        own = () if options.get("ignore_eos") else trainer.eos_token_ids
        return {*own, *(options.get("stop_token_ids") or ())}
    given = options.get("eos_token_id")
    return {*trainer.eos_token_ids, *([given] if isinstance(given, int) else given or ())}


def _one_a_group(prompts: list, prompt_ids: list[list[int]], num_generations: int) -> list[list[int]]:
    groups = [prompts[start : start + num_generations] for start in range(0, len(prompts), num_generations)]
    if any(len(group) < num_generations or any(prompt != group[0] for prompt in group) for group in groups):
        raise RuntimeError(
            f"A tree is grown for a whole group on one rank, but this rank's {len(prompts)} prompts are not groups of "
            f"{num_generations} equal ones. Make `per_device_train_batch_size * steps_per_generation` a multiple of "
            "`num_generations`, and keep TRL's sampler."
        )
    return prompt_ids[::num_generations]


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
    if refused := sorted(set(options) & set(_OF_WHOLE_COMPLETIONS[args.use_vllm])):
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
            f"of num_generations: {per_device} * {steps} = {per_device * steps} is none of {group}."
        )


def _problems_of_trainer(trainer: GRPOTrainer) -> Iterator[str]:
    if trainer.tools or trainer.environment_factories:
        yield "Tools and environments write into a completion: leave out `tools` and `environment_factory`."
    if trainer._is_vlm:
        yield "Trees are grown for text only: give a tokenizer as `processing_class` instead of a processor."
