"""TRL's table of completions, printed and written whatever a model wrote."""

import io
import json
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pandas as pd
from pyarrow import ArrowException
from transformers.utils import logging
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from tempo_trl.runs.messages import valid_text
from tempo_trl.runs.printing import replacing_unprintable
from tempo_trl.trainers import faults
from tempo_trl.trainers.logged_names import OWN_COLUMNS

logger = logging.get_logger(__name__)

UNWRITABLE = (ArrowException, ValueError, TypeError, OverflowError)  # what pandas raises for values without a type


@contextmanager
def surviving_table(trainer: GRPOTrainer) -> Iterator[None]:
    """Let TRL log inside the block, with a [`readable_table`], and warn if its file cannot be written."""
    shown = trainer.log_completions and trainer.accelerator.is_main_process
    try:
        with replacing_unprintable(), readable_table(trainer) if shown else nullcontext():
            yield
    except OSError as error:
        if not faults.is_of_the_completions_table(error):
            raise
        path = faults.completions_path(trainer.args, trainer.state.global_step)
        faults.remove_if_torn(path)
        faults.warn_of_a_refused_table(path.parent, error)


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
