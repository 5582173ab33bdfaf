"""
What the package no longer has, because it did not prove its worth: names, what to use instead, and where they are.
And old names that still work in this release.

It imports nothing of ours, so that the command line can read it before torch is there.
"""

import warnings
from collections.abc import Callable
from functools import wraps

COMMIT = "7994bc6"  # the last one that has all of them
# A class, method or field with what to do instead. A recipe has the name of its method.
REMOVED = {
    "KernelBaselineConfig": "use `PrefixBaselineConfig`",
    "KernelBaselineTrainer": "use `PrefixBaselineTrainer`",
    "kernel_baseline": "use `prefix_baseline`",
    "similarity_block": "remove it",
    "similarity_order": "remove it",
}

# Old names of fields of the configurations, which still work.
FORMER = {
    "anchor_history": "state_history",
    "min_advantage": "advantage_floor",
    "shared_tokens": "count_shared_tokens",
}


def former_name(old: str, new: str) -> str:
    """The warning for an old name."""
    return f"`{old}` is called `{new}` now. The old name will be gone in the next release."


def with_former_attributes(**former: str) -> Callable[[type], type]:
    """
    Class decorator: old names of attributes work, each with a FutureWarning.

    Args:
        former (`dict[str, str]`): Maps an old name to the field that has its meaning now.
    """

    def decorate(cls: type) -> type:
        for old, new in former.items():
            setattr(cls, old, _alias(old, new))
        return cls

    return decorate


def with_former_names(*names: str) -> Callable[[type], type]:
    """The same for names in `FORMER`, which work as keywords of the constructor, too."""
    former = {old: FORMER[old] for old in names}

    def decorate(cls: type) -> type:
        construct = cls.__init__

        @wraps(construct)
        def with_new_names(self, *args, **kwargs):
            construct(self, *args, **current_names(kwargs, former))

        cls.__init__ = with_new_names
        return with_former_attributes(**former)(cls)

    return decorate


def current_names(keywords: dict, former: dict[str, str]) -> dict:
    """Keywords of a constructor, with a FutureWarning for each that has a former name."""
    for old in former.keys() & keywords.keys():
        warnings.warn(former_name(old, former[old]), FutureWarning, stacklevel=3)
    current = {name: value for name, value in keywords.items() if name not in former}
    return current | {former[name]: value for name, value in keywords.items() if name in former}


def _alias(old: str, new: str) -> property:
    def read(self):
        warnings.warn(former_name(old, new), FutureWarning, stacklevel=2)
        return getattr(self, new)

    def write(self, value):
        warnings.warn(former_name(old, new), FutureWarning, stacklevel=2)
        setattr(self, new, value)

    return property(read, write, doc=f"Former name of `{new}`.")


def removed_hint(name: object) -> str | None:
    """What to do instead of something that was removed, and the commit that has it; None for any other name."""
    instead = REMOVED.get(name) if isinstance(name, str) else None  # a list, too, may stand in a recipe
    return instead and (
        f"`{name}` was removed with the kernel baseline, which was not ahead of the prefix baseline: {instead}. "
        f"Commit {COMMIT} still has it"
    )
