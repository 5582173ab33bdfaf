"""Rewards inside a completion: functions, or process reward models, that score each turn or step."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedModel
from trl import GRPOTrainer
from trl.models import prepare_deepspeed
from trl.trainer.utils import get_config_model_id

from tempo_trl.report.token_text import token_pieces
from tempo_trl.trainers.replaced import Call

StepRewardFunc = str | PreTrainedModel | Callable[..., list[list[float | None]]]


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
        self.failure: Exception | None = None  # of the last batch: kept, because other ranks wait for this one's rows
        self.metrics: dict[str, tuple[float, float]] = {}  # of the last batch on this rank

    def __call__(self, scored: Call, steps: torch.Tensor, output: dict) -> torch.Tensor:
        """
        Rewards of this rank's rows, `(B, N)`: the weighted sum of the functions, NaN where none gave a number.

        Args:
            scored ([`Call`]):
                TRL's call that scored the whole completions.
            steps (`torch.Tensor` of shape `(B, T)`, int64):
                Step of each token; -1 for tokens of no step.
            output (`dict`):
                TRL's batch.
        """
        counts = (steps.amax(dim=1) + 1).tolist()
        rewards = torch.full((len(self.functions), len(steps), max(counts)), torch.nan)
        self.failure = None
        try:
            for function, name, own in zip(self.functions, self.names, rewards, strict=True):
                _fill(own, self._result(function, scored, steps, output), counts, name)
        except Exception as error:
            self.failure = error
        self.metrics = {}
        for name, own in zip(self.names, rewards, strict=True):
            self.metrics |= _means(name, own)
        weighted = rewards * torch.tensor(self.weights)[:, None, None]
        return weighted.nansum(dim=0).masked_fill(rewards.isnan().all(dim=0), torch.nan)

    def _result(self, function, scored: Call, steps: torch.Tensor, output: dict) -> list[list[float | None]]:
        if isinstance(function, torch.nn.Module):
            return _scores(function, steps, output)
        result = function(**_keywords(self._trainer, scored))
        return asyncio.run(result) if inspect.isawaitable(result) else result


def step_ends(tokenizer: Any, completion_ids: torch.Tensor, turns: torch.Tensor, delimiter: str) -> torch.Tensor:
    """Tokens that complete a delimiter within their turn, `(B, T)`, bool; not before what has no text, such as EOS."""
    ends, special = torch.zeros(turns.shape, dtype=torch.bool), set(tokenizer.all_special_ids)
    for row, ids in enumerate(completion_ids.tolist()):
        for turn in range(int(turns[row].max()) + 1):
            columns = (turns[row] == turn).nonzero().flatten().tolist()
            while columns and ids[columns[-1]] in special:
                columns.pop()
            text, seen = "", 0
            for column, piece in zip(columns[:-1], token_pieces(tokenizer, [ids[c] for c in columns]), strict=False):
                text += piece
                ends[row, column] = text.count(delimiter) > seen
                seen = text.count(delimiter)
    return ends


def _keywords(trainer: GRPOTrainer, scored: Call) -> dict[str, Any]:
    """TRL's keyword arguments of a reward function."""
    inputs, prompts, completions, completion_ids = scored.arguments
    names = [name for name in inputs[0] if name not in ("prompt", "completion", "completion_ids")]
    columns = {name: [row[name] for row in inputs] for name in names}
    if trainer.environments is not None:
        columns["environments"] = trainer.environments
    own = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
    return own | columns | {"trainer_state": trainer.state}


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
    if isinstance(function, str):
        return function.split("/")[-1]
    if isinstance(function, torch.nn.Module):
        return get_config_model_id(function.config).split("/")[-1]
    return getattr(function, "__name__", type(function).__name__)


def _prepared(function: StepRewardFunc, trainer: GRPOTrainer) -> Callable | torch.nn.Module:
    """The function, or the model on its device, as TRL prepares a reward model."""
    if isinstance(function, str):
        options = dict(trainer.args.model_init_kwargs or {}) | {"device_map": None}
        _check_vocabulary(function, AutoTokenizer.from_pretrained(function), trainer)
        function = AutoModelForTokenClassification.from_pretrained(function, **options)
    if not isinstance(function, torch.nn.Module):
        return function
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(function, trainer.accelerator)
    return trainer.accelerator.prepare_model(function, evaluation_mode=True, device_placement=True).eval()


def _check_vocabulary(name: str, tokenizer: Any, trainer: GRPOTrainer) -> None:
    policy = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    if tokenizer.get_vocab() != policy.get_vocab():
        raise ValueError(
            f"The process reward model {name} must have the policy's vocabulary, because it reads the policy's token "
            f"ids; it has another one ({len(tokenizer)} tokens, the policy has {len(policy)}). Use a model of the "
            "same family, or call it in a function of your own."
        )


def _scores(model: torch.nn.Module, steps: torch.Tensor, output: dict) -> list[list[float]]:
    """
    Score of each step at its last token: the probability of label 1 of a model with two labels, or the logit of
    a model with one label.
    """
    device = output["prompt_ids"].device
    inside = torch.arange(steps.shape[1]) <= _last_columns(steps).max(dim=1, keepdim=True).values
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    mask = torch.cat([output["prompt_mask"], inside.to(device, output["prompt_mask"].dtype)], dim=1)
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, output["prompt_ids"].shape[1] :].float().cpu()
    scores = logits[..., 0] if logits.shape[-1] == 1 else logits.softmax(dim=-1)[..., 1]
    last = _last_columns(steps)
    return [
        [scores[row, column].item() for column in columns if column >= 0] for row, columns in enumerate(last.tolist())
    ]


def _last_columns(steps: torch.Tensor) -> torch.Tensor:
    """Last column of each step, `(B, N)`; -1 where a row has no such step."""
    count = int(steps.max()) + 1
    last = torch.full((len(steps), count + 1), -1)  # the last column takes the tokens of no step
    columns = torch.arange(steps.shape[1]).expand(len(steps), -1)
    return last.scatter_reduce_(1, torch.where(steps >= 0, steps, count), columns, "amax")[:, :count]
