"""
What the package no longer has, because it did not prove its worth: names, what to use instead, and where they are.
And old names that still work in this release.

The table is plain data and imports nothing, so that the command line can read it before torch is there.
"""

COMMIT = "7994bc6"  # the last one that has all of them
# A class, method or field with what to do instead. A recipe has the name of its method.
REMOVED = {
    "KernelBaselineConfig": "use `PrefixBaselineConfig`",
    "KernelBaselineTrainer": "use `PrefixBaselineTrainer`",
    "kernel_baseline": "use `prefix_baseline`",
    "similarity_block": "remove it",
    "similarity_order": "remove it",
}

FORMER = {"min_advantage": "advantage_floor"}


def former_name(name: str) -> str:
    """The warning for an old name."""
    return f"`{name}` is called `{FORMER[name]}` now. The old name will be gone in the next release."


def removed_hint(name: object) -> str | None:
    """What to do instead of something that was removed, and the commit that has it; None for any other name."""
    instead = REMOVED.get(name) if isinstance(name, str) else None  # a list, too, may stand in a recipe
    return instead and (
        f"`{name}` was removed with the kernel baseline, which was not ahead of the prefix baseline: {instead}. "
        f"Commit {COMMIT} still has it"
    )
