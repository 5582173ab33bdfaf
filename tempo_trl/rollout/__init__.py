"""Grow trees of completions for TRL's `rollout_func`: of fixed shape, or split where the policy is uncertain."""

from tempo_trl.credit.grown_tree import GrownTree, Segment
from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree_rollout import TreeRollout

__all__ = ["EntropyTree", "FixedTree", "GrownTree", "Segment", "TreeRollout"]
