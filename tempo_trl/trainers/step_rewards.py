"""Rewards inside a completion: functions, or process reward models, that score each turn or step."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedModel
from trl import GRPOTrainer
from trl.models import prepare_deepspeed
from trl.trainer.utils import get_callable_name, get_config_model_id

from tempo_trl.credit.turns import turn_ends
from tempo_trl.rewards.span_reward import LARGEST_REWARD
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.reward_functions import RewardFunctions, distinct_names
from tempo_trl.trainers.scored_rows import ScoredRows

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
        prepared, names = [_prepared(each, trainer) for each in functions], distinct_names(map(_name, functions))
        weights = trainer.args.step_reward_weights
        self._functions = RewardFunctions(trainer, "step_reward_funcs", prepared, names, weights)

    def __call__(self, rows: ScoredRows, steps: torch.Tensor, report: Report) -> torch.Tensor:
        """
        Weighted sum of the functions for each step of this rank's rows, `(B, N)`; NaN where none gave a number.

        Args:
            rows ([`ScoredRows`]):
                The rows.
            steps (`torch.Tensor` of shape `(B, T)`, int64):
                Step of each token; -1 for tokens of no step.
            report ([`Report`]):
                Keeps an error of a function, and what functions log.
        """
        ours, logged = self._functions, self._functions.logged()
        counts = (steps.amax(dim=1) + 1).tolist()
        rewards = torch.full((len(ours.functions), len(steps), max(counts)), torch.nan)
        keywords = ours.keywords(rows, logged)

        def score(index: int) -> None:
            model = ours.functions[index] if isinstance(ours.functions[index], torch.nn.Module) else None
            given = _scores(model, steps, rows.output) if model is not None else ours.result(index, keywords)
            _fill(rewards[index], given, counts, ours.names[index])

        ours.each(report, score)
        weighted = rewards * torch.tensor(ours.weights)[:, None, None]
        rewarded = weighted.nansum(dim=0).masked_fill(rewards.isnan().all(dim=0), torch.nan)
        report.add(logged.metrics, logged.columns)
        for name, own in zip(ours.names, rewards, strict=True):
            report.add(_means(name, own), {})
        return rewarded


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
        if (numbers.abs() > LARGEST_REWARD).any():
            raise ValueError(
                f"{name} must return finite numbers or None, at most {LARGEST_REWARD:g} in size, got "
                f"{numbers.tolist()} for row {row}."
            )
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
