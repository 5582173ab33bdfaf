"""Compute on the tree: rows of tokens as one stream in which shared prefixes stand once, and a trainer's forward pass.

A trainer owns a [`TreePass`]; a trainer of yours takes the mixin [`TreeForward`].
"""

from importlib import import_module

# Imported on first use: a configuration with `TreeForwardFields` must not wait for TRL's trainer.
_PUBLIC = {
    "PackedRows": "packed_rows",
    "Paths": "paths",
    "TreeForward": "tree_pass",
    "TreeForwardFields": "config",
    "TreePass": "tree_pass",
    "pack_rows": "packed_rows",
    "register_tree_attention": "tree_attention",
}

__all__ = [
    "PackedRows",
    "Paths",
    "TreeForward",
    "TreeForwardFields",
    "TreePass",
    "pack_rows",
    "register_tree_attention",
]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
