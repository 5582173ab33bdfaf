"""The border to functions of the user: what they may be, get, return and log."""

import asyncio
import atexit
import io
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase
from trl import GRPOTrainer
from trl.trainer.grpo_trainer import RolloutFunc
from trl.trainer.utils import is_async_callable, shutdown_event_loop_in_daemon, start_event_loop_in_daemon

from tempo_trl.runs.metrics import METRICS, OWN_COLUMNS
from tempo_trl.trainers.faults import watch_rewards

if TYPE_CHECKING:
    from tempo_trl.trainers.credit_log import Failures

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


def refuse_reserved_metrics(names: Iterable[str]) -> None:
    """Raise ValueError if a name given to `log_metric` is that of a metric which is logged anyway."""
    for name in names:
        family, slash, _ = name.partition("/")
        if name in TRL_METRICS or (slash and family in FAMILIES):
            raise ValueError(
                f"A reward function called `log_metric({name!r}, ...)`, but the trainer logs "
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


def refuse_a_wrong_credit_func(given: object, has_its_own: bool, trainer: str) -> None:
    """
    Raise ValueError for a `credit_func` that cannot be used.

    Args:
        given:
            What the user passed.
        has_its_own (`bool`):
            Whether the trainer is a method with a credit function of its own.
        trainer (`str`):
            Name of the trainer, for the message.
    """
    if has_its_own and given is not None:
        raise ValueError(
            f"`credit_func` must be None, got a function: {trainer} has its own credit function. Use "
            "TokenCreditTrainer with yours."
        )
    if not has_its_own and not callable(given):
        raise ValueError(
            f"`credit_func` must be a function from a tempo_trl.Batch to advantages, got {given!r}. Pass "
            f"{trainer}(..., credit_func=your_function)."
        )


def refuse_a_state_that_cannot_be_loaded(credit_func: Callable, name: str) -> None:
    """
    Raise ValueError if a checkpoint could not be read with the state of a credit function, instead of at a resume.

    Args:
        credit_func (`Callable`):
            The credit function, after its first update.
        name (`str`):
            Its name, for the message.
    """
    if not hasattr(credit_func, "state_dict"):
        return
    file = io.BytesIO()
    torch.save(credit_func.state_dict(), file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"`state_dict()` of `credit_func` {name} must have tensors, numbers and strings, in lists, tuples and "
            f"dicts: a resumed run reads nothing else from a checkpoint. Got {_refused_type(error)}. Convert NumPy "
            "numbers with float(), arrays with torch.from_numpy, and other objects to these types."
        ) from error


def _refused_type(error: pickle.UnpicklingError) -> str:
    """The type that torch names in its error."""
    named = re.search(r"Unsupported (?:global: GLOBAL|class) (\S+)", str(error))
    return named[1] if named else "another type"


def refuse_missing_span_functions(functions: list, trainer: str) -> None:
    """
    Raise ValueError if a method that reads criteria has no function that judges any.

    Args:
        functions (`list`):
            The `span_reward_funcs`.
        trainer (`str`):
            Name of the trainer, for the message.
    """
    if not functions:
        raise ValueError(
            "`span_reward_funcs` must be a function, or a list of functions, that return lists of SpanReward; got "
            f"none. Pass {trainer}(..., span_reward_funcs=your_function), or use TRL's GRPOTrainer for rewards "
            "without a place."
        )


READERS = {
    "step_reward_funcs": "GiGPOTrainer, HGPOTrainer, AnchorBaselineTrainer, or TokenCreditTrainer with a function "
    "that reads `batch.step_rewards`",
    "span_reward_funcs": "SpanCreditTrainer, or TokenCreditTrainer with a function that reads `batch.criteria`",
}


def checked_functions(argument: str, given: list | Callable | str | None, are_read: bool, trainer: str) -> list:
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

    Raises:
        ValueError: if there are any, and they would not be used, or one cannot be called.
    """
    functions = given if isinstance(given, list) else [] if given is None else [given]
    if functions and not are_read:
        raise ValueError(
            f"`{argument}` must be None, got {len(functions)}: {trainer} would not use them. Use {READERS[argument]}."
        )
    if argument == "span_reward_funcs" and not all(map(callable, functions)):
        wrong = next(function for function in functions if not callable(function))
        raise ValueError(f"`{argument}` must be functions that return SpanReward, got {wrong!r}.")
    return functions


def checked_rollout(rollout: RolloutFunc) -> Callable:
    """
    A `rollout_func` whose result is compared with the prompts that it was called with.

    Raises:
        ValueError: when it is called, if the result has another number of rows than there are prompts, a completion
            without a token, log-probabilities or an `env_mask` of another length than their completion, or rows in
            another order than the prompts.
    """

    def call(prompts: list, trainer) -> dict[str, Any]:
        output = rollout(prompts, trainer)
        if not isinstance(output, dict):
            raise ValueError(f"`rollout_func` must return a dict, got {type(output).__name__}.")
        _check_counts(output, len(prompts))
        _check_lengths(output)
        _check_order(output, prompts, trainer._tokenizer)
        return output

    return call


def _check_counts(output: dict[str, Any], rows: int) -> None:
    """Every list has one entry per prompt. Fields of its own may be single values, which TRL gives to all rows."""
    for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask"):
        values = output.get(name)
        if values is not None and len(values) != rows:
            repeated = len(values) % rows == 0 and len(values) > rows
            raise ValueError(
                f"`rollout_func` must return one row per prompt, got {len(values)} rows of `{name}` for {rows} "
                "prompts. "
                + (
                    "TRL has already repeated each prompt `num_generations` times: return one completion for each."
                    if repeated
                    else "Return the rows of all prompts, in the order of the prompts."
                )
            )
    for name, values in output.items():
        if isinstance(values, list) and len(values) != rows:
            raise ValueError(
                f"`rollout_func` must return one value per prompt in `{name}`, which reward functions get as a "
                f"column; got {len(values)} values for {rows} prompts."
            )


def _check_lengths(output: dict[str, Any]) -> None:
    """Every row has a token, and a log-probability and a mask for each of its completion's tokens."""
    for name in ("prompt_ids", "completion_ids"):
        for row, ids in enumerate(output.get(name) or ()):
            if len(ids) == 0:
                raise ValueError(
                    f"`rollout_func` must return at least one token in each row, got none in `{name}` of row {row}. "
                    "Return the end-of-sequence token for an answer without text."
                )
    for name in ("logprobs", "env_mask"):
        for row, values in enumerate(output.get(name) or ()):
            tokens = len(output["completion_ids"][row])
            if len(values) != tokens:
                raise ValueError(
                    f"`rollout_func` must return one number per token of the completion in `{name}`, got "
                    f"{len(values)} for the {tokens} tokens of row {row}."
                )


def _check_order(output: dict[str, Any], prompts: list, tokenizer: PreTrainedTokenizerBase) -> None:
    """
    Raise ValueError if a row's `prompt_ids` have the text of another prompt and not that of its own.

    An environment may write prompts of its own: rows with no text of any prompt are left alone.
    """
    asked = [_squeezed(_text(prompt)) for prompt in prompts]
    known = {text for text in asked if text}
    for row, ids in enumerate(output.get("prompt_ids") or ()):
        seen = _squeezed(tokenizer.decode(ids, skip_special_tokens=True))
        if asked[row] in seen:
            continue
        other = next((asked.index(text) for text in known if text in seen), None)
        if other is not None:
            raise ValueError(
                f"`rollout_func` must return its rows in the order of the prompts, got the text of prompt {other} in "
                f"`prompt_ids` of row {row}, whose prompt is {asked[row][:80]!r}. Rewards would read the columns of "
                "another row. Return the rows in the order in which the prompts came."
            )


def _text(prompt: str | Sequence[dict]) -> str:
    """What a prompt asks: its text, or that of its last message."""
    if isinstance(prompt, str):
        return prompt
    content = prompt[-1].get("content") if prompt else None
    if isinstance(content, list):
        return " ".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content or ""


def _squeezed(text: str) -> str:
    """A text without white space, which tokenizers and chat templates change."""
    return "".join(text.split())


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

    def each(self, failures: "Failures", score: Callable[[int], None]) -> None:
        """
        Score with one function after the other. An error ends the work of its function and is kept.

        Args:
            failures ([`Failures`]): Keeps the error.
            score (`Callable`): Gets the index of each function.
        """
        patience, rank = self._trainer.args.ddp_timeout / 2, self._trainer.accelerator.process_index
        with watch_rewards(patience, rank, self.names):
            for index in range(len(self.functions)):
                with failures.of(f"`{self._argument}`"):  # and continue: a sharded reward model needs every rank
                    score(index)

    def result(self, index: int, keywords: dict[str, Any]) -> Any:
        """What a function returns; one that is async is awaited."""
        result = self.functions[index](**keywords)
        if is_async_callable(self.functions[index]):
            return asyncio.run_coroutine_threadsafe(result, self._loop).result()
        return result

    def keywords(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids: list, logged: Logged
    ) -> dict[str, Any]:
        """TRL's keyword arguments of a reward function. What functions log goes to `logged`."""
        names = [name for name in inputs[0] if name not in ("prompt", "completion", "completion_ids")]
        keywords = {name: [row[name] for row in inputs] for name in names}
        if self._trainer.environments is not None:
            keywords["environments"] = self._trainer.environments
        keywords |= {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
        logging = {"log_metric": logged.log_metric, "log_extra": logged.log_extra}
        return keywords | {"trainer_state": self._trainer.state} | logging


def _event_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread, as TRL has for its own async functions: clients stay bound to it over the whole run."""
    thread, loop, ready = start_event_loop_in_daemon(name="RewardFunctions-AsyncLoop")
    ready.wait()
    atexit.register(shutdown_event_loop_in_daemon, thread, loop)
    return loop
