"""What the functions of `step_reward_funcs` and `span_reward_funcs` may be, get and log: as TRL's reward functions."""

import asyncio
import atexit
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain, count
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import is_async_callable, shutdown_event_loop_in_daemon, start_event_loop_in_daemon

from tempo_trl.runs.metrics import METRICS, OWN_COLUMNS
from tempo_trl.trainers.checks import watch_rewards
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import ScoredRows

TRL_COLUMNS = ("step", "prompt", "completion", "advantage", "image")
TRL_METRICS = (
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "num_tokens",
    "step_time",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "kl",
    "entropy",
    "entropy_coef",
    "policy_loss",
    "aux_loss",
    "cispo_clip_ratio",
)
# What stands before the first slash of a metric.
FAMILIES = {name.partition("/")[0] for name in METRICS} | {
    *("completions", "tools", "rewards", "sampling", "clip_ratio", "vespo", "profiling")
}


def refuse_reserved_metrics(
    names: Iterable[str], said: str = "A reward function called `log_metric({!r}, ...)`"
) -> None:
    """Raise ValueError if one of the names that a function of the user's gives is that of a metric logged anyway."""
    for name in names:
        family, slash, _ = name.partition("/")
        if name in TRL_METRICS or (slash and family in FAMILIES):
            raise ValueError(
                f"{said.format(name)}, but the trainer logs "
                f"{f'metrics {family}/*' if slash else 'this metric'} itself, and would average both. Choose another "
                f"name, such as 'my_reward/{name.rpartition('/')[2]}'."
            )


def refuse_reserved_columns(names: Iterable[str], reward_names: Iterable[str]) -> None:
    """Raise ValueError if a name given to `log_extra` is that of another column of the completions table."""
    for name in names:
        if name in {*TRL_COLUMNS, *OWN_COLUMNS, *reward_names}:
            raise ValueError(
                f"A reward function called `log_extra({name!r}, ...)`, but the completions table has a column of this "
                f"name. Choose another name, such as 'my_{name}'."
            )


READERS = {
    "step_reward_funcs": "GiGPOTrainer, HGPOTrainer, or TokenCreditTrainer with a function "
    "that reads `batch.step_rewards`",
    "span_reward_funcs": "SpanCreditTrainer, or TokenCreditTrainer with a function that reads `batch.criteria`",
}


def checked_functions(
    argument: str, given: list | Callable | str | None, are_read: bool, trainer: str, are_needed: bool = False
) -> list:
    """
    The functions of `step_reward_funcs` or `span_reward_funcs` as a list.

    Args:
        argument (`str`):
            Name of the argument.
        given:
            What the user passed: one function or several.
        are_read (`bool`):
            Whether the trainer's credit may depend on them.
        trainer (`str`):
            Name of the trainer, for the message.
        are_needed (`bool`, *optional*, defaults to `False`):
            Whether the method is nothing without them.

    Raises:
        ValueError: if there are any, and they would not be used, or one cannot be called; if there is none, and the
            method needs one.
    """
    functions = given if isinstance(given, list) else [] if given is None else [given]
    if are_needed and not functions:
        raise ValueError(
            f"`{argument}` must be a function, or a list of functions, that return lists of SpanReward; got none. "
            f"Pass {trainer}(..., {argument}=your_function), or use TRL's GRPOTrainer for rewards without a place."
        )
    if functions and not are_read:
        raise ValueError(
            f"`{argument}` must be None, got {len(functions)}: {trainer} would not use them. Use {READERS[argument]}."
        )
    wrong = [each for each in functions if not callable(each) or isinstance(each, torch.nn.Module)]
    if argument == "span_reward_funcs" and wrong:
        raise ValueError(
            f"`{argument}` must be a function that returns lists of SpanReward, or a list of such functions, got "
            f"{reprlib.repr(wrong[0])}."
        )
    return functions


def distinct_names(functions: Iterable[str]) -> list[str]:
    """Names of functions, numbered where one comes again: two partials of a function have metrics of their own."""
    distinct: list[str] = []
    for name in functions:
        numbered = (f"{name}_{number}" for number in count(2))
        distinct.append(next(each for each in chain([name], numbered) if each not in distinct))
    return distinct


class Logged:
    """What functions log with TRL's `log_metric` and `log_extra`, for one batch of this rank."""

    def __init__(self, reward_names: list[str]):
        self._reward_names = reward_names
        self._metrics: dict[str, list[float]] = defaultdict(list)
        self._columns: dict[str, list] = defaultdict(list)

    def log_metric(self, name: str, value: float) -> None:
        refuse_reserved_metrics([name])
        self._metrics[name].append(float(value))

    def log_extra(self, column: str, values: list) -> None:
        refuse_reserved_columns([column], self._reward_names)
        self._columns[column].extend(values)

    @property
    def metrics(self) -> dict[str, tuple[float, float]]:
        """(sum, count) by name, to be summed over ranks."""
        return {name: (sum(values), len(values)) for name, values in self._metrics.items()}

    @property
    def columns(self) -> dict[str, list]:
        """Columns of the table of completions."""
        return dict(self._columns)


class RewardFunctions:
    """
    The functions that were passed as one argument of a trainer.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        argument (`str`):
            Name of the argument, for messages.
        functions, names (`list`):
            The functions and their names.
        weights (`list[float]`, *optional*):
            Weight of each function. Defaults to 1 each.

    Raises:
        ValueError: if the weights do not fit the functions.
    """

    def __init__(
        self, trainer: GRPOTrainer, argument: str, functions: list, names: list[str], weights: list[float] | None
    ):
        if weights is not None and len(weights) != len(functions):
            raise ValueError(
                f"`{argument.removesuffix('_funcs')}_weights` must have {len(functions)} numbers, one per function of "
                f"`{argument}`, got {len(weights)}."
            )
        self._trainer, self._argument = trainer, argument
        self.functions, self.names = functions, names
        self.weights = [1.0] * len(functions) if weights is None else weights
        self._loop = _event_loop() if any(map(is_async_callable, functions)) else None

    def logged(self) -> Logged:
        """What the functions log for one batch: nothing yet."""
        return Logged(self._trainer.reward_func_names)

    def each(self, report: Report, score: Callable[[int], None]) -> None:
        """
        Score with one function after the other. An error ends the work of its function and is kept.

        Args:
            report ([`Report`]): Keeps the error.
            score (`Callable`): Gets the index of each function.
        """
        patience, rank = self._trainer.args.ddp_timeout / 2, self._trainer.accelerator.process_index
        with watch_rewards(patience, rank, self.names):
            for index, name in enumerate(self.names):
                with report.keeps_errors_of(
                    f"`{self._argument}` {name}"
                ):  # then continue: a sharded model needs every rank
                    score(index)

    def result(self, index: int, keywords: dict[str, Any]) -> Any:
        """What a function returns; one that is async is awaited."""
        result = self.functions[index](**keywords)
        if is_async_callable(self.functions[index]):
            return asyncio.run_coroutine_threadsafe(result, self._loop).result()
        return result

    def keywords(self, rows: ScoredRows, logged: Logged) -> dict[str, Any]:
        """TRL's keyword arguments of a reward function. What functions log goes to `logged`."""
        names = [name for name in rows.inputs[0] if name not in ("prompt", "completion", "completion_ids")]
        keywords = {name: [row[name] for row in rows.inputs] for name in names}
        if self._trainer.environments is not None:
            keywords["environments"] = self._trainer.environments
        keywords |= {"prompts": rows.prompts, "completions": rows.completions, "completion_ids": rows.completion_ids}
        logging = {"log_metric": logged.log_metric, "log_extra": logged.log_extra}
        return keywords | {"trainer_state": self._trainer.state} | logging


def _event_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread, as TRL has for its own async functions: clients stay bound to it over the whole run."""
    thread, loop, ready = start_event_loop_in_daemon(name="RewardFunctions-AsyncLoop")
    ready.wait()
    atexit.register(shutdown_event_loop_in_daemon, thread, loop)
    return loop
