"""Printing to terminals that are not UTF-8: an ASCII locale of a container, or Windows' cp1252."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replacing_unprintable() -> Iterator[None]:
    """Print `?` inside the block for each character that the terminal cannot encode, instead of raising an error."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    before = [stream.errors for stream in streams]
    for stream in streams:
        stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            stream.reconfigure(errors=errors)
