"""Rewards inside a completion: functions, or process reward models, that score each turn or step."""

import asyncio
import atexit
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedModel
from trl import GRPOTrainer
from trl.models import prepare_deepspeed
from trl.trainer.utils import (
    get_callable_name,
    get_config_model_id,
    is_async_callable,
    shutdown_event_loop_in_daemon,
    start_event_loop_in_daemon,
)

from tempo_trl.credit.turns import turn_ends
from tempo_trl.trainers.failures import Failures
from tempo_trl.trainers.faults import watch_rewards
from tempo_trl.trainers.scored_rows import ScoredRows

StepRewardFunc = str | PreTrainedModel | Callable[..., list[list[float | None]]]


class StepScores(NamedTuple):
    """
    What the `step_reward_funcs` made of this rank's rows. Without such functions it is empty.

    Args:
        rewards: Weighted sum of the functions, `(B, N)`; NaN where none gave a number.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        columns: What functions add to the table of completions with `log_extra`, a value per row.
    """

    rewards: torch.Tensor | None = None
    metrics: dict[str, tuple[float, float]] = {}
    columns: dict[str, list] = {}


class StepRewards:
    """
    The rewards per step of a batch, from functions in TRL's calling convention.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`.
        functions (`list`):
            As in [`~tempo_trl.TokenCreditTrainer`].

    Raises:
        ValueError: if the weights do not fit the functions, or a process reward model has another vocabulary than the
            policy.
    """

    def __init__(self, trainer: GRPOTrainer, functions: list[StepRewardFunc]):
        self._trainer = trainer
        self.functions = [_prepared(function, trainer) for function in functions]
        self.names = [_name(function) for function in functions]
        weights = trainer.args.step_reward_weights
        if weights is not None and len(weights) != len(functions):
            raise ValueError(
                f"`step_reward_weights` must have {len(functions)} numbers, one per function of `step_reward_funcs`, "
                f"got {len(weights)}."
            )
        self.weights = [1.0] * len(functions) if weights is None else weights
        self._loop = _event_loop() if any(map(is_async_callable, self.functions)) else None

    def __call__(self, rows: ScoredRows, steps: torch.Tensor, failures: Failures) -> StepScores:
        """
        Score this rank's rows.

        Args:
            rows ([`ScoredRows`]):
                The rows.
            steps (`torch.Tensor` of shape `(B, T)`, int64):
                Step of each token; -1 for tokens of no step.
            failures ([`Failures`]):
                Keeps an error of a function.
        """
        counts = (steps.amax(dim=1) + 1).tolist()
        rewards = torch.full((len(self.functions), len(steps), max(counts)), torch.nan)
        metrics, columns = defaultdict(list), defaultdict(list)
        keywords = _keywords(self._trainer, rows, metrics, columns)
        patience, rank = self._trainer.args.ddp_timeout / 2, self._trainer.accelerator.process_index
        with watch_rewards(patience, rank, self.names):
            for function, name, own in zip(self.functions, self.names, rewards, strict=True):
                with failures.of("`step_reward_funcs`"):  # and continue: a sharded reward model needs every rank
                    _fill(own, self._result(function, keywords, steps, rows.output), counts, name)
        weighted = rewards * torch.tensor(self.weights)[:, None, None]
        rewarded = weighted.nansum(dim=0).masked_fill(rewards.isnan().all(dim=0), torch.nan)
        logged = {name: (sum(values), len(values)) for name, values in metrics.items()}
        for name, own in zip(self.names, rewards, strict=True):
            logged |= _means(name, own)
        return StepScores(rewarded, logged, dict(columns))

    def _result(self, function, keywords: dict, steps: torch.Tensor, output: dict) -> list[list[float | None]]:
        if isinstance(function, torch.nn.Module):
            return _scores(function, steps, output)
        result = function(**keywords)
        if is_async_callable(function):
            return asyncio.run_coroutine_threadsafe(result, self._loop).result()
        return result


def _event_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread, as TRL has for its own async functions: clients stay bound to it over the whole run."""
    thread, loop, ready = start_event_loop_in_daemon(name="StepRewards-AsyncLoop")
    ready.wait()
    atexit.register(shutdown_event_loop_in_daemon, thread, loop)
    return loop


def _keywords(
    trainer: GRPOTrainer, rows: ScoredRows, metrics: dict[str, list[float]], columns: dict[str, list]
) -> dict[str, Any]:
    """TRL's keyword arguments of a reward function; what functions log goes to `metrics` and `columns`."""
    names = [name for name in rows.inputs[0] if name not in ("prompt", "completion", "completion_ids")]
    keywords = {name: [row[name] for row in rows.inputs] for name in names}
    if trainer.environments is not None:
        keywords["environments"] = trainer.environments
    keywords |= {"prompts": rows.prompts, "completions": rows.completions, "completion_ids": rows.completion_ids}
    logging = {
        "log_metric": lambda name, value: metrics[name].append(float(value)),
        "log_extra": lambda column, values: columns[column].extend(values),
    }
    return keywords | {"trainer_state": trainer.state} | logging


def _fill(rewards: torch.Tensor, given: Any, counts: list[int], name: str) -> None:
    """Write the numbers that a function gave to `(B, N)` rewards, None as NaN."""
    if not isinstance(given, list) or len(given) != len(counts):
        got = f"{len(given)} lists" if isinstance(given, list) else type(given).__name__
        raise ValueError(f"{name} must return {len(counts)} lists, one per completion, got {got}.")
    for row, (numbers, count) in enumerate(zip(given, counts, strict=True)):
        if not isinstance(numbers, list | tuple) or len(numbers) != count:
            got = f"{len(numbers)}: {numbers!r}" if isinstance(numbers, list | tuple) else repr(numbers)
            raise ValueError(
                f"{name} must return {count} numbers for row {row}, one per turn or step, got {got}. Use None for a "
                "turn without a reward."
            )
        try:
            numbers = torch.tensor([torch.nan if number is None else float(number) for number in numbers])
        except (TypeError, ValueError):
            raise ValueError(f"{name} must return numbers or None, got {numbers!r} for row {row}.") from None
        if numbers.isinf().any():
            raise ValueError(f"{name} must return finite numbers or None, got {numbers.tolist()} for row {row}.")
        rewards[row, :count] = numbers


def _means(name: str, rewards: torch.Tensor) -> dict[str, tuple[float, float]]:
    """Sums and counts of a function's rewards, over all turns and of each."""
    total, count = rewards.nansum(dim=0), (~rewards.isnan()).sum(dim=0)
    metrics = {f"step_rewards/{name}/mean": (total.sum().item(), count.sum().item())}
    return metrics | {
        f"step_rewards/{name}/turn_{n}": (total[n].item(), count[n].item()) for n in range(rewards.shape[1])
    }


# Process reward models


def _name(function: StepRewardFunc) -> str:
    if isinstance(function, torch.nn.Module):
        function = get_config_model_id(function.config)
    return function.rstrip("/").split("/")[-1] if isinstance(function, str) else get_callable_name(function)


def _prepared(function: StepRewardFunc, trainer: GRPOTrainer) -> Callable | torch.nn.Module:
    """The function, or the model on its device, as TRL loads and prepares a reward model."""
    if isinstance(function, str):
        options = {"trust_remote_code": trainer.args.trust_remote_code} | (trainer.args.model_init_kwargs or {})
        known = {name: options[name] for name in ("revision", "trust_remote_code") if options.get(name) is not None}
        _check_vocabulary(function, AutoTokenizer.from_pretrained(function, **known), trainer)
        function = AutoModelForTokenClassification.from_pretrained(function, **options | {"device_map": None})
    if not isinstance(function, torch.nn.Module):
        return function
    _check_embeddings(function, trainer)
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(function, trainer.accelerator)
    return trainer.accelerator.prepare_model(function, evaluation_mode=True, device_placement=True).eval()


def _check_vocabulary(name: str, tokenizer: Any, trainer: GRPOTrainer) -> None:
    policy = trainer._tokenizer
    if tokenizer.get_vocab() != policy.get_vocab():
        raise ValueError(
            f"The process reward model {name} must have the policy's vocabulary, because it reads the policy's token "
            f"ids; it has another one ({len(tokenizer)} tokens, the policy has {len(policy)}). Use a model of the "
            "same family, or call it in a function of your own."
        )


def _check_embeddings(model: PreTrainedModel, trainer: GRPOTrainer) -> None:
    """Raise ValueError if the policy has tokens without an embedding. A model that is passed has no tokenizer."""
    size, needed = model.get_input_embeddings().num_embeddings, len(trainer._tokenizer)
    if size < needed:
        raise ValueError(
            f"The process reward model {_name(model)} must have an embedding for each of the policy's {needed} "
            f"tokens, because it reads the policy's token ids; it has {size}. Use a model of the same family, or call "
            "it in a function of your own."
        )


def _scores(model: torch.nn.Module, steps: torch.Tensor, output: dict) -> list[list[float]]:
    """
    Score of each step at its last token: the probability of label 1 of a model with two labels, or the logit of
    a model with one label.
    """
    device = output["prompt_ids"].device
    inside = (steps >= 0).flip(1).cumsum(dim=1).flip(1) > 0  # up to the last token of the last step
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    mask = torch.cat([output["prompt_mask"], inside.to(device, output["prompt_mask"].dtype)], dim=1)
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, output["prompt_ids"].shape[1] :].float().cpu()
    scores = logits[..., 0] if logits.shape[-1] == 1 else logits.softmax(dim=-1)[..., 1]
    return [
        [scores[row, column].item() for column in columns if column >= 0]
        for row, columns in enumerate(turn_ends(steps).tolist())
    ]
