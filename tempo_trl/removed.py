"""
What the package no longer has, because it did not prove its worth: names, what to use instead, and where they are.

The table is plain data and imports nothing, so that the command line can read it before torch is there.
"""

COMMIT = "7994bc6"  # the last one that has all of them
# A name of a field or of a flag, with what to do instead.
REMOVED = {"merge_states": "to compare completions at the same state, train with method `gigpo` or `hgpo`"}


def removed_hint(name: str) -> str | None:
    """What to do instead of something that was removed, and the commit that has it; None for any other name."""
    instead = REMOVED.get(name.replace("-", "_"))
    return instead and f"`{name}` was removed: {instead}. Commit {COMMIT} still has it"


def refuse_removed(keywords: dict) -> None:
    """Raise ValueError for a keyword of a configuration that was removed."""
    for hint in filter(None, map(removed_hint, keywords)):
        raise ValueError(f"{hint}.")
