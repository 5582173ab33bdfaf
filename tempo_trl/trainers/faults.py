"""Faults of the world around a run: a disk that refuses the completions table, a reward function that hangs."""

import contextlib
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

logger = logging.get_logger(__name__)


def is_of_the_completions_table(error: OSError) -> bool:
    """Whether the error rose where TRL writes its parquet file of completions, and not in a tracker or a callback.

    That write is all for which `GRPOTrainer.log` itself calls pandas: so the frame after its own is pandas'.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for caller, callee in itertools.pairwise(frames):
        if caller.f_code is GRPOTrainer.log.__code__:
            return callee.f_globals["__name__"].startswith("pandas.")
    return False


def completions_path(args: GRPOConfig, step: int) -> Path:
    """Where TRL writes the completions of a step."""
    return Path(args.output_dir) / "completions" / f"completions_{step:05d}.parquet"


def warn_of_a_refused_table(folder: Path, error: OSError) -> None:
    """Say once that the tables of completions do not arrive on the disk."""
    logger.warning_once(
        f"The completions could not be written to {folder}: {error.strerror or error}. Training goes on without the "
        "tables that the disk refuses (trackers, which TRL serves after the disk, do not get them either). This is "
        "said once: make room, or set `log_completions=False`."
    )


def remove_if_torn(path: Path) -> None:
    """Remove a parquet file that was not written to its end: one of them makes the whole folder unreadable."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        if path.is_file() and file.read() != b"PAR1":
            path.unlink()


@contextlib.contextmanager
def watch_rewards(seconds: float, rank: int, names: list[str]) -> Iterator[None]:
    """Log once where this rank is if the block takes longer than `seconds`.

    A reward function that hangs on one rank leaves the others in a collective, which names neither that rank nor the
    function when it gives up after `ddp_timeout`.
    """
    timer = threading.Timer(seconds, _log_position, (threading.get_ident(), seconds, rank, names))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _log_position(thread: int, seconds: float, rank: int, names: list[str]) -> None:
    stack = traceback.extract_stack(sys._current_frames()[thread])
    start = max((i for i, frame in enumerate(stack) if frame.name == "_calculate_rewards"), default=0)
    logger.warning(
        f"Rank {rank} has spent {seconds:g} s on the rewards of one batch ({', '.join(names)}). If a function hangs "
        "on one rank, the others give up after ddp_timeout, and the launcher ends the run. This rank is at:\n"
        + "".join(traceback.format_list(stack[start:]))
    )
