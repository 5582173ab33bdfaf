"""What trainers share whose completions are grown as trees: the rollout that grows them, and weights of leaves."""

import math

import torch
from trl import GRPOConfig

from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree import GrownTree
from tempo_trl.rollout.tree_rollout import TreeRollout


def fixed(args: GRPOConfig) -> TreeRollout:
    """The rollout of a configuration with [`~tempo_trl.rollout.config.FixedTreeFields`]."""
    step_tokens = args.tree_step_tokens or math.ceil(args.max_completion_length / args.tree_depth)
    return TreeRollout(FixedTree(args.tree_children, args.tree_depth, step_tokens))


def entropy(args: GRPOConfig) -> TreeRollout:
    """The rollout of a configuration with [`~tempo_trl.rollout.config.EntropyTreeFields`]."""
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


def row_weights(trees: list[GrownTree], kind: str) -> torch.Tensor | None:
    """Weight of each completion of a batch in its group, `(B,)`; None where all weigh the same."""
    weights = [tree.leaf_weights(kind) for tree in trees]
    return None if all(torch.allclose(group, group[:1]) for group in weights) else torch.cat(weights)
