"""Compute on the tree: rows of tokens as one stream in which shared prefixes stand once, and attention over it.

Knows torch and transformers, and nothing of TRL: `tempo_trl.tree_forward.mixin` puts it into a trainer.
"""

from tempo_trl.tree_forward.packed_rows import PackedRows, pack_rows
from tempo_trl.tree_forward.paths import Paths
from tempo_trl.tree_forward.tree_attention import register_tree_attention

__all__ = ["PackedRows", "Paths", "pack_rows", "register_tree_attention"]
