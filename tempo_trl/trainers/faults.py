"""External faults: a table that cannot be written, a reward function that hangs, a vLLM server that stops."""

import contextlib
import io
import itertools
import json
import os
import traceback
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from pyarrow import ArrowException
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.rollout.vllm_server import advice_if_server_stops, samples_on_server
from tempo_trl.runs.messages import valid_text
from tempo_trl.runs.metrics import OWN_COLUMNS
from tempo_trl.runs.printing import replacing_unprintable

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


UNWRITABLE = (ArrowException, ValueError, TypeError, OverflowError)  # what pandas raises for values without a type


@contextmanager
def surviving_table(trainer: GRPOTrainer) -> Iterator[None]:
    """Let TRL log inside the block, with a [`readable_table`], and warn if its file cannot be written."""
    shown = trainer.log_completions and trainer.accelerator.is_main_process
    try:
        with replacing_unprintable(), readable_table(trainer) if shown else nullcontext():
            yield
    except OSError as error:
        if not is_of_the_completions_table(error):
            raise
        path = completions_path(trainer.args, trainer.state.global_step)
        remove_if_torn(path)
        warn_of_a_refused_table(path.parent, error)


@contextmanager
def readable_table(trainer: GRPOTrainer) -> Iterator[None]:
    """
    Let TRL print and write its table inside the block, whatever a model or a reward function put into it.

    The printed table has none of our columns, which would squeeze the text; files have them. A conversation is printed
    as JSON if the arguments of a call in it are not a JSON object. A column is written as text if its values have no
    common type, such as calls with `{"a": 2}` and `{"a": "two"}`, and left out if it has another length.
    """
    theirs, logs = grpo_trainer.print_prompt_completions_sample, trainer._logs

    def print_sample(prompts, completions, *args, extra=None, **keywords):
        shown = {name: values for name, values in (extra or {}).items() if name not in OWN_COLUMNS}
        theirs(prompts, [_printable(entry) for entry in completions], *args, extra=shown, **keywords)

    without_images = grpo_trainer.strip_images_from_messages  # as TRL does before it writes them
    columns = {name: _writable(map(without_images, logs[name])) for name in ("prompt", "completion")}
    extra = {name: _writable(values) for name, values in logs["extra"].items() if _fits(name, values, logs)}
    with (
        patch.multiple(trainer, _logs={**logs, **columns, "extra": extra}),
        patch.multiple(grpo_trainer, print_prompt_completions_sample=print_sample),
    ):
        yield


def _printable(completion: str | list[dict]) -> str | list[dict]:
    messages = completion if isinstance(completion, list) else []
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    objects = all(isinstance(call.get("function", {}).get("arguments", {}), dict) for call in calls)
    return completion if objects else _as_text(completion)


def _fits(name: str, values: Sized, logs: dict) -> bool:
    rows = len(logs["prompt"])
    if len(values) != rows:
        logger.warning_once(
            f"The column `{name}` of the completions table has {len(values)} values, expected {rows}: it is left out. "
            "Call `log_extra` with one value per completion, in each call of the reward function. This warning is "
            "given once."
        )
    return len(values) == rows


def _writable(column: Iterable) -> list:
    """The values of a column, as text if no parquet file can hold them."""
    values = list(column)
    try:
        pd.DataFrame({"column": values}).to_parquet(io.BytesIO())
    except UNWRITABLE:
        return [_as_text(value) for value in values]
    return values


def _as_text(value: Any) -> str:
    return valid_text(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))
