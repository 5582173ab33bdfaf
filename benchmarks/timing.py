"""What the benchmarks of speed share: `--quick`, the shortest of a few times, and the table of what was measured."""

import argparse
import platform
import time
from collections.abc import Callable, Iterable, Sequence

import torch
from rich.console import Console
from rich.table import Column, Table

RATIO = ("ratio", "measured", "goal")


def is_quick(description: str, means: str, arguments: Sequence[str] | None = None) -> bool:
    """Whether the command line asks for the short form, and what that `means`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=means)
    return parser.parse_args(arguments).quick


def seconds(call: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.process_time) -> float:
    """Shortest of `repeats` runs: in CPU time, so that other processes do not count, unless `clock` is another."""
    found = []
    for _ in range(repeats):
        start = clock()
        call()
        found.append(clock() - start)
    return min(found)


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of names and numbers with the machine under it."""
    caption = f"{platform.machine()}, torch {torch.__version__}, one thread"
    numbers = (Column(heading, justify="right") for heading in headings[1:])
    table = Table(headings[0], *numbers, title=title, caption=caption)
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
