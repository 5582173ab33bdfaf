"""Grow trees of completions, fixed in shape or split where the policy is uncertain, for TRL's `rollout_func`."""

from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree import GrownTree, Segment
from tempo_trl.rollout.tree_rollout import TreeRollout

__all__ = ["EntropyTree", "FixedTree", "GrownTree", "Segment", "TreeRollout"]
