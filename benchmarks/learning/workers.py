"""Trains many runs, a few at a time, each in a process of its own that costs no imports.

A server process imports torch and TRL once and trains nothing. Each run is a fork of it: as good as a fresh process,
since nothing has run in it before, and it begins at once.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.learning.runs import Run
from benchmarks.learning.starts import Start

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


class Failed(RuntimeError):
    """A run failed; its log says why."""


def _into(log: Path, work, *arguments) -> None:
    """`work(*arguments)` with everything that is printed appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    work(*arguments)


def _train(recipe: str) -> None:
    from benchmarks.learning.training import train_run  # the server has imported it

    train_run(recipe)


def _job(item: Start | Run) -> tuple[str, Path, tuple]:
    """What an item is called, its log, and what to do for it."""
    log = item.folder / "log.txt"
    if isinstance(item, Start):
        return f"start of {item.task.name}", log, (item.make,)
    return f"{item.start.task.name} {item.name}", log, (_train, str(item.prepare()))


def finish(items: Sequence[Start | Run], parallel: int, console: Console, what: str) -> None:
    """Make the starts, or train the runs, that are not there yet, `parallel` at a time.

    Raises:
        Failed: one did not end well. The others that were under way are stopped; their checkpoints stay.
    """
    waiting = [item for item in dict.fromkeys(items) if not _is_there(item)]
    if not waiting:
        return
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.learning.training"])
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task(what, total=len(waiting))
        _run_all(waiting, parallel, context, lambda: progress.advance(bar))


def _is_there(item: Start | Run) -> bool:
    return item.is_made() if isinstance(item, Start) else item.is_finished()


def _run_all(waiting: list, parallel: int, context, advance) -> None:
    active: dict[multiprocessing.Process, tuple[str, Path]] = {}
    try:
        while waiting or active:
            while waiting and len(active) < parallel:
                name, log, (work, *arguments) = _job(waiting.pop(0))
                process = context.Process(target=_into, args=(log, work, *arguments), daemon=True)
                process.start()
                active[process] = (name, log)
            time.sleep(0.05)
            for process in [process for process in active if not process.is_alive()]:
                name, log = active.pop(process)
                if process.exitcode:
                    raise Failed(f"{name} failed. The end of {log}:\n" + "\n".join(log.read_text().splitlines()[-15:]))
                advance()
    finally:
        for process in active:
            process.terminate()
        for process in active:
            process.join()
