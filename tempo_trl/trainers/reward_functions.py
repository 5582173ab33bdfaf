"""What the functions of `step_reward_funcs` and `span_reward_funcs` may be, get and log: as TRL's reward functions."""

import asyncio
import atexit
import re
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, count
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import is_async_callable, shutdown_event_loop_in_daemon, start_event_loop_in_daemon

from tempo_trl.runs.metrics import METRICS, OWN_COLUMNS
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import ScoredRows

TRL_COLUMNS = ("step", "prompt", "completion", "advantage", "image")
# Patterns of the names that a run logs.
LOGGED = [
    *("loss", "grad_norm", "learning_rate", "epoch", "num_tokens", "step_time", "kl", "entropy", "entropy_coef"),
    *("reward", "reward_std", "frac_reward_zero_std", "policy_loss", "aux_loss", "cispo_clip_ratio"),
    *("completions/m*_length", "completions/clipped_ratio", "tools/*_frequency", "rewards/*/mean", "rewards/*/std"),
    *("sampling/*", "clip_ratio/*", "vespo/*", "profiling/*"),
    *(re.sub("NAME|L$", "*", name) for name in METRICS),
]


def refuse_reserved_metrics(names: Iterable[str], said: str = "A reward function called `log_metric({!r}, ...)`"):
    """Raise ValueError if one of the names that a function of the user's gives is that of a metric logged anyway."""
    for name in names:
        if any(fnmatchcase(name, logged) for logged in LOGGED):
            raise ValueError(
                f"{said.format(name)}, but the trainer logs a metric of this name itself, and would average both. "
                f"Choose another name, such as 'my_reward/{name.rpartition('/')[2]}'."
            )


def refuse_reserved_columns(names: Iterable[str], reward_names: Iterable[str]) -> None:
    """Raise ValueError if a name given to `log_extra` is that of another column of the completions table."""
    for name in names:
        if name in {*TRL_COLUMNS, *OWN_COLUMNS, *reward_names}:
            raise ValueError(f"`log_extra({name!r}, ...)` names a column that the completions table has. Rename it.")


READERS = {
    "step_reward_funcs": "GiGPOTrainer, HGPOTrainer, or a `credit_func` that reads `batch.step_rewards`",
    "span_reward_funcs": "SpanCreditTrainer, or a `credit_func` that reads `batch.criteria`",
}


def checked_functions(
    argument: str, given: Any, weights: list[float] | None, are_read: bool, trainer: str, are_needed: bool = False
) -> list:
    """
    The functions of `step_reward_funcs` or `span_reward_funcs` as a list.

    Args:
        argument (`str`):
            Name of the argument.
        given:
            What the user passed: one function or several.
        weights (`list[float]`, *optional*):
            Weight of each function.
        are_read (`bool`):
            Whether the trainer's credit may depend on them.
        trainer (`str`):
            Name of the trainer, for the message.
        are_needed (`bool`, *optional*, defaults to `False`):
            Whether the method is nothing without them.

    Raises:
        ValueError: if there are any, and they would not be used, or one cannot be called; if there is none, and the
            method needs one; if there are more or fewer weights than functions.
    """
    functions = given if isinstance(given, list) else [] if given is None else [given]
    if functions and not are_read:
        raise ValueError(
            f"`{argument}` must be None, got {len(functions)}: {trainer} would not use them. Use {READERS[argument]}."
        )
    wrong = [reprlib.repr(each) for each in functions if not callable(each) or isinstance(each, torch.nn.Module)]
    if (argument == "span_reward_funcs" and wrong) or (are_needed and not functions):
        raise ValueError(
            f"`{argument}` must be a function that returns lists of SpanReward, or a list of such functions, got "
            f"{wrong[0] if wrong else 'none'}. Pass one, or use TRL's GRPOTrainer for rewards without a place."
        )
    if weights is not None and len(weights) != len(functions):
        field = f"{argument.removesuffix('_funcs')}_weights"
        raise ValueError(f"`{field}` must have {len(functions)} numbers, one per function, got {len(weights)}.")
    return functions


def distinct_names(functions: Iterable[str]) -> list[str]:
    """Names of functions, numbered where one comes again: two partials of a function have metrics of their own."""
    distinct: list[str] = []
    for name in functions:
        numbered = (f"{name}_{number}" for number in count(2))
        distinct.append(next(each for each in chain([name], numbered) if each not in distinct))
    return distinct


class Calls:
    """
    The calls of an argument's functions for one batch of this rank: what they get, and what they log.

    Async functions run from now on, all at once; [`result`] calls any other.

    Args:
        functions (`list`):
            The functions.
        keywords (`dict`):
            What they are called with, beside `log_metric` and `log_extra`.
        reward_names (`list[str]`):
            Columns of the table of completions that rewards have.
        loop (`asyncio.AbstractEventLoop`, *optional*):
            Where async functions run.
    """

    def __init__(self, functions: list, keywords: dict[str, Any], reward_names: list[str], loop: Any):
        self._functions, self._reward_names = functions, reward_names
        self.metrics: dict[str, tuple[float, float]] = {}  # (sum, count) by name, to be summed over ranks
        self.columns: dict[str, list] = defaultdict(list)  # of the table of completions
        self._keywords = keywords | {"log_metric": self._log_metric, "log_extra": self._log_extra}
        waits = [index for index, function in enumerate(functions) if is_async_callable(function)]
        self._running = {i: asyncio.run_coroutine_threadsafe(self._awaited(functions[i]), loop) for i in waits}

    def result(self, index: int) -> Any:
        """What a function returns."""
        if index in self._running:
            return self._running[index].result()
        return self._functions[index](**self._keywords)

    async def _awaited(self, function: Callable) -> Any:
        return await function(**self._keywords)  # here, so that an error of the call itself is the function's, too

    def _log_metric(self, name: str, value: float) -> None:
        refuse_reserved_metrics([name])
        total, count = self.metrics.get(name, (0.0, 0))
        self.metrics[name] = total + float(value), count + 1

    def _log_extra(self, column: str, values: list) -> None:
        refuse_reserved_columns([column], self._reward_names)
        self.columns[column].extend(values)


class RewardFunctions:
    """
    The functions that were passed as one argument of a trainer, and their scores of a batch.

    Async functions of both arguments run together, and beside TRL's async reward functions, in one event loop.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`.
        functions (`list`):
            The functions.
        names (`Iterable[str]`):
            Their names. Of equal ones the later are numbered.
        weights (`list[float]`, *optional*):
            Weight of each function. Defaults to 1 each.
    """

    argument: str  # its name

    def __init__(self, trainer: GRPOTrainer, functions: list, names: Iterable[str], weights: list[float] | None):
        self._trainer, self.functions, self.names = trainer, functions, distinct_names(names)
        self.weights = [1.0] * len(functions) if weights is None else weights
        self._loop = _event_loop(trainer) if any(map(is_async_callable, functions)) else None

    def begin(self, rows: ScoredRows, **more) -> None:
        """Start the async functions on a batch. `more` is what the functions get beside TRL's keyword arguments."""
        trainer, of_trl = self._trainer, ("prompt", "completion", "completion_ids")
        keywords = {name: [row[name] for row in rows.inputs] for name in rows.inputs[0] if name not in of_trl}
        if trainer.environments is not None:
            keywords["environments"] = trainer.environments
        keywords |= {"prompts": rows.prompts, "completions": rows.completions}
        keywords |= {"completion_ids": [[*ids] for ids in rows.completion_ids], "trainer_state": trainer.state, **more}
        rows.calls[self.argument] = Calls(self.functions, keywords, trainer.reward_func_names, self._loop)

    def each(self, rows: ScoredRows, report: Report, score: Callable[[int, Callable[[], Any]], None]) -> None:
        """
        Score a batch with one function after the other. An error ends the work of its function and is kept.

        Args:
            rows ([`ScoredRows`]): The batch, after [`begin`].
            report ([`Report`]): Keeps the error, and what functions log.
            score (`Callable`): Gets the index of each function, and what calls it or waits for it.
        """
        calls = rows.calls[self.argument]
        for index, name in enumerate(self.names):
            # An error does not end the loop: a sharded model needs every rank.
            with report.keeps_errors_of(f"`{self.argument}` {name}"):
                score(index, partial(calls.result, index))
        report.add(calls.metrics, calls.columns)


def _event_loop(trainer: GRPOTrainer) -> asyncio.AbstractEventLoop:
    """
    The loop in a thread that TRL has for its own async functions, or one like it over the whole run: a client that
    several functions share is bound to one loop.
    """
    if not hasattr(trainer, "async_loop"):
        thread, trainer.async_loop, ready = start_event_loop_in_daemon(name="GRPOTrainer-AsyncLoop")
        ready.wait()
        atexit.register(shutdown_event_loop_in_daemon, thread, trainer.async_loop)
    return trainer.async_loop
