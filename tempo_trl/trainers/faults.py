"""External faults: a table that cannot be written, a vLLM server that stops."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from pyarrow import ArrowException
from transformers.utils import logging
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.rollout.vllm_server import advice_if_server_stops, samples_on_server
from tempo_trl.runs.messages import valid_text
from tempo_trl.runs.metrics import OWN_COLUMNS
from tempo_trl.runs.printing import replace_unprintable

logger = logging.get_logger(__name__)


@contextmanager
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
    with ExitStack() as stack:
        stack.enter_context(advice_if_server_stops(*place))
        if samples_on_server(trainer.args) and trainer.accelerator.is_main_process:
            sync_weights = end_if_server_dies(*place)(trainer.vllm_generation.sync_weights)
            stack.enter_context(patch.multiple(trainer.vllm_generation, sync_weights=sync_weights))
        yield


UNWRITABLE = (ArrowException, ValueError, TypeError, OverflowError)  # what pandas raises for values without a type


@contextmanager
def surviving_table(trainer: GRPOTrainer) -> Iterator[None]:
    """
    Let TRL print and write its table of completions inside the block, whatever a model or the disk does.

    The printed table has none of our columns, which would squeeze the text; files have them. A conversation is printed
    as JSON if the arguments of a call in it are not a JSON object. A column is written as text if its values have no
    common type, such as calls with `{"a": 2}` and `{"a": "two"}`. A file that cannot be written gives a warning.
    """
    folder = Path(trainer.args.output_dir, "completions")
    print_theirs, write_theirs = grpo_trainer.print_prompt_completions_sample, pd.DataFrame.to_parquet

    def print_sample(prompts, completions, *args, extra=None, **keywords):
        shown = {name: values for name, values in (extra or {}).items() if name not in OWN_COLUMNS}
        print_theirs(prompts, [_printable(entry) for entry in completions], *args, extra=shown, **keywords)

    def write(table, path=None, *args, **keywords):
        if Path(str(path)).parent != folder:  # a tracker's
            return write_theirs(table, path, *args, **keywords)
        try:
            _write(write_theirs, table, path)
        except OSError as error:
            with suppress(OSError):  # a single incomplete file makes the whole folder unreadable
                Path(path).unlink()
            _warn_of_a_refused_table(folder, error)

    replace_unprintable()
    with (
        patch.object(grpo_trainer, "print_prompt_completions_sample", print_sample),
        patch.object(pd.DataFrame, "to_parquet", write),
    ):
        yield


def _printable(completion: str | list[dict]) -> str | list[dict]:
    messages = completion if isinstance(completion, list) else []
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    objects = all(isinstance(call.get("function", {}).get("arguments", {}), dict) for call in calls)
    return completion if objects else _as_text(completion)


def _write(write: Callable, table: pd.DataFrame, path: str) -> None:
    """Write a table, whose columns become text where no parquet file can hold their values."""
    try:
        write(table, path)
    except UNWRITABLE:
        for name in table:
            try:
                write(table[[name]], BytesIO())
            except UNWRITABLE:
                table[name] = table[name].map(_as_text)
        write(table, path)


def _as_text(value: Any) -> str:
    return valid_text(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def _warn_of_a_refused_table(folder: Path, error: OSError) -> None:
    logger.warning_once(
        f"Could not write the completions to {folder}: {error.strerror or error}. Training continues. Tables that "
        "cannot be written are lost. Free disk space, or set `log_completions=False`. This warning is given once."
    )
