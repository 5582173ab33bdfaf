"""Tree rollouts in TRL: the object to pass as `rollout_func` to `GRPOTrainer`."""

import contextlib

import torch
from trl import GRPOTrainer

from tempo_trl.credit.grown_tree import GrownTree
from tempo_trl.rollout.completion_rules import rules_of
from tempo_trl.rollout.growth import Grower, grow
from tempo_trl.rollout.transformers_sampler import transformers_sampler
from tempo_trl.rollout.tree_requirements import check_trees_can_grow
from tempo_trl.rollout.vllm_sampler import VLLMSampler


class TreeRollout:
    """
    Grows the completions of training as trees: `GRPOTrainer(..., rollout_func=TreeRollout(grower))`.

    In evaluation TRL's own code samples completions independently, so that accuracies are comparable with those of
    other methods.

    Args:
        grower ([`~tempo_trl.rollout.growth.Grower`]):
            [`~tempo_trl.rollout.fixed.FixedTree`] or [`~tempo_trl.rollout.entropy.EntropyTree`].

    Attributes:
        trees (`list[GrownTree]`, *optional*):
            The trees of the last call on this rank, one per group, in the order of the completions; None after a call
            in evaluation.

    Raises:
        ValueError: when it is called, see [`~tempo_trl.rollout.tree_requirements.check_trees_can_grow`].
        RuntimeError: if the prompts of a rank are not whole groups.
    """

    def __init__(self, grower: Grower):
        self.grower = grower
        self.trees: list[GrownTree] | None = None

    def __call__(self, prompts: list, trainer: GRPOTrainer) -> dict[str, list]:
        """TRL's rollout for this rank's prompts, one per completion: `prompt_ids`, `completion_ids`, `logprobs`."""
        check_trees_can_grow(trainer.args, self.grower, trainer)
        prompt_ids, images, _ = trainer._tokenize_prompts(prompts)
        if images is not None:
            raise ValueError("Tree rollouts support text prompts only, got prompts with images. Remove the images.")
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

        own = contextlib.nullcontext(VLLMSampler(trainer)) if trainer.use_vllm else transformers_sampler(trainer)
        with own as sampler:
            return grow(self.grower, prompts, rules_of(trainer), sampler, on_any_rank)

    def _completions(self, trainer: GRPOTrainer) -> tuple[list, list | None]:
        rows = [(tree, leaf) for tree in self.trees for leaf in tree.rows]
        completion_ids = [tree.completion_ids(leaf) for tree, leaf in rows]
        if not trainer.use_vllm:  # as in TRL, which then computes the log-probabilities itself
            return completion_ids, None
        return completion_ids, [tree.logprobs(leaf) for tree, leaf in rows]

    def statistics(self) -> dict[str, tuple[float, float]]:
        """
        Statistics of the last call on this rank, as (sum, count). The mean over all ranks is the ratio of their sums.

        - `generated_tokens`: tokens of a tree; a shared token counts once.
        - `generated_share`: generated tokens / tokens of all completions.
        - `leaves`: distinct completions of a tree.
        - `depth`: segments from the prompt to a leaf.
        - `forced_tokens`: tokens of a tree that were forced instead of sampled.
        - `repeated_rows`: share of completions that repeat another's leaf.
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


def only_rollout(grows_trees: TreeRollout, given: object) -> TreeRollout:
    """The rollout of a method that grows trees. Raises ValueError if the user has given another one."""
    if given is not None:
        raise ValueError(
            "`rollout_func` must be None, got a function: this method grows its completions as trees, with its "
            "own rollout. Remove it, or use a method that samples independently (TEMPOTrainer with rollout='iid')."
        )
    return grows_trees


def _one_a_group(prompts: list, prompt_ids: list[list[int]], num_generations: int) -> list[list[int]]:
    groups = [prompts[start : start + num_generations] for start in range(0, len(prompts), num_generations)]
    if any(len(group) < num_generations or any(prompt != group[0] for prompt in group) for group in groups):
        raise RuntimeError(
            f"got {len(prompts)} prompts on this rank, expected groups of {num_generations} equal prompts: a tree is "
            "grown for a whole group. Make `per_device_train_batch_size * steps_per_generation` a multiple of "
            "`num_generations`, and use TRL's own sampler."
        )
    return prompt_ids[::num_generations]
