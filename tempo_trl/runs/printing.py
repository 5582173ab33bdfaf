"""Printing to terminals that are not UTF-8: an ASCII locale of a container, or Windows' cp1252."""

import sys


def replace_unprintable() -> None:
    """From here on, print `?` for each character that the terminal cannot encode, instead of raising an error."""
    if hasattr(sys.stdout, "reconfigure"):  # that of a notebook is UTF-8, and has none
        sys.stdout.reconfigure(errors="replace")  # stderr never raises
