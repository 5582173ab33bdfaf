"""Compute on the tree: pack rows of tokens so that shared prefixes occur once, for a trainer's forward pass.

The trainers of this package have a [`~tempo_trl.tree_forward.tree_pass.TreePass`].
"""
