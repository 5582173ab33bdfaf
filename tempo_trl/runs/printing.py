"""Printing to terminals that are not UTF-8: an ASCII locale of a container, or Windows' cp1252."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replacing_unprintable() -> Iterator[None]:
    """Print `?` inside the block for each character that the terminal cannot encode, instead of raising an error."""
    before = getattr(sys.stdout, "errors", None)  # stderr never raises
    reconfigure = getattr(sys.stdout, "reconfigure", dict)  # that of a notebook is UTF-8, and has none
    reconfigure(errors="replace")
    try:
        yield
    finally:
        reconfigure(errors=before)
