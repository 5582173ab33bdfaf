"""External faults: the completions table cannot be written, a reward function hangs, the vLLM server stops."""

import contextlib
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.rollout.vllm_server import advice_if_server_stops, samples_on_server

logger = logging.get_logger(__name__)


def is_of_the_completions_table(error: OSError) -> bool:
    """Whether the error was raised while TRL wrote its parquet file of completions, not by a tracker or a callback.

    `GRPOTrainer.log` calls pandas only for that write, so the frame after its own is one of pandas.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for caller, callee in itertools.pairwise(frames):
        if caller.f_code is GRPOTrainer.log.__code__:
            return callee.f_globals["__name__"].startswith("pandas.")
    return False


def completions_path(args: GRPOConfig, step: int) -> Path:
    """The file to which TRL writes the completions of a step."""
    return Path(args.output_dir) / "completions" / f"completions_{step:05d}.parquet"


def warn_of_a_refused_table(folder: Path, error: OSError) -> None:
    """Warn once that the tables of completions cannot be written."""
    logger.warning_once(
        f"Could not write the completions to {folder}: {error.strerror or error}. Training continues. Tables that "
        "cannot be written are lost, and are not sent to trackers either. Free disk space, or set "
        "`log_completions=False`. This warning is given once."
    )


def remove_if_torn(path: Path) -> None:
    """Remove an incomplete parquet file, because a single one makes the whole folder unreadable."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        if path.is_file() and file.read() != b"PAR1":
            path.unlink()


@contextlib.contextmanager
def watch_rewards(seconds: float, rank: int, names: list[str]) -> Iterator[None]:
    """Log the stack of this rank once if the block takes longer than `seconds`.

    If a reward function hangs on one rank, the others wait in a collective. After `ddp_timeout` that fails with a
    message that names neither the rank nor the function.
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
        f"Rank {rank} has spent {seconds:g} s on the rewards of one batch ({', '.join(names)}). If a reward function "
        "hangs on one rank, the other ranks time out after ddp_timeout and the run ends. Stack of this rank:\n"
        + "".join(traceback.format_list(stack[start:]))
    )


@contextlib.contextmanager
def watched_server(trainer: GRPOTrainer, model: str) -> Iterator[None]:
    """
    Add advice to the error if the vLLM server stops, and end the run if it stops while TRL sends weights to it.
    Does nothing with colocated vLLM.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        model (`str`):
            Model id or folder, for the command that starts a server.
    """
    place = trainer.args, model, trainer.state.global_step
    with contextlib.ExitStack() as stack:
        stack.enter_context(advice_if_server_stops(*place))
        if samples_on_server(trainer.args) and trainer.accelerator.is_main_process:
            sync_weights = end_if_server_dies(*place)(trainer.vllm_generation.sync_weights)
            stack.enter_context(patch.multiple(trainer.vllm_generation, sync_weights=sync_weights))
        yield
