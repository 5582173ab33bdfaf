"""Printing to terminals that are not UTF-8: an ASCII locale of a container, or Windows' cp1252."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replacing_unprintable() -> Iterator[None]:
    """Print `?` inside the block for each character that the terminal cannot encode, instead of raising an error."""
    stream = sys.stdout  # stderr never raises
    if not hasattr(stream, "reconfigure"):  # of a notebook, which is UTF-8
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        stream.reconfigure(errors=before)
