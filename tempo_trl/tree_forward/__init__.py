"""Compute on the tree: pack rows of tokens so that shared prefixes occur once, for a trainer's forward pass.

The trainers of this package have a [`TreePass`]. Add the mixin [`TreeForward`] to a trainer of your own.
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
