"""Grown trees in TRL: the object for `GRPOTrainer`'s `rollout_func`."""

import contextlib
import math

import torch
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.completion_rules import rules_of
from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import Grower, Sampler, grow
from tempo_trl.rollout.transformers_sampler import transformers_sampler
from tempo_trl.rollout.tree import GrownTree
from tempo_trl.rollout.tree_requirements import check_trees_can_grow
from tempo_trl.rollout.vllm_sampler import VLLMSampler


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
        ValueError: at the first call, see [`~tempo_trl.rollout.tree_requirements.check_trees_can_grow`].
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
        def on_any_rank(condition: bool) -> bool:
            ranks = torch.tensor(int(condition), device=trainer.accelerator.device)
            return trainer.accelerator.reduce(ranks, reduction="sum").item() > 0

        with _sampler_of(trainer) as sampler:
            return grow(self.grower, prompts, rules_of(trainer), sampler, on_any_rank)

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


def _sampler_of(trainer: GRPOTrainer) -> contextlib.AbstractContextManager[Sampler]:
    return contextlib.nullcontext(VLLMSampler(trainer)) if trainer.use_vllm else transformers_sampler(trainer)


def _one_a_group(prompts: list, prompt_ids: list[list[int]], num_generations: int) -> list[list[int]]:
    groups = [prompts[start : start + num_generations] for start in range(0, len(prompts), num_generations)]
    if any(len(group) < num_generations or any(prompt != group[0] for prompt in group) for group in groups):
        raise RuntimeError(
            f"A tree is grown for a whole group on one rank, but this rank's {len(prompts)} prompts are not groups of "
            f"{num_generations} equal ones. Make `per_device_train_batch_size * steps_per_generation` a multiple of "
            "`num_generations`, and keep TRL's sampler."
        )
    return prompt_ids[::num_generations]


def fixed_tree_rollout(args: GRPOConfig) -> TreeRollout:
    """The rollout of a configuration with [`~tempo_trl.rollout.config_fields.FixedTreeFields`]."""
    step_tokens = args.tree_step_tokens or math.ceil(args.max_completion_length / args.tree_depth)
    return TreeRollout(FixedTree(args.tree_children, args.tree_depth, step_tokens))


def entropy_tree_rollout(args: GRPOConfig) -> TreeRollout:
    """The rollout of a configuration with [`~tempo_trl.rollout.config_fields.EntropyTreeFields`]."""
    delimiters = {} if args.tree_delimiters is None else {"delimiters": tuple(args.tree_delimiters)}
    return TreeRollout(
        EntropyTree(
            num_generations=args.num_generations,
            max_depth=args.tree_max_depth,
            min_segment_tokens=args.tree_min_segment_tokens,
            entropy_threshold=args.tree_entropy_threshold,
            coverage_tokens=args.tree_coverage_tokens,
            **delimiters,
        )
    )
