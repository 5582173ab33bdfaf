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
from tempo_trl.trainers.report import Report, Sums
from tempo_trl.trainers.reward_functions import RewardFunctions
from tempo_trl.trainers.scored_rows import ScoredRows

StepRewardFunc = str | PreTrainedModel | Callable[..., list[list[float | None]]]


class StepRewards(RewardFunctions):
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

    argument = "step_reward_funcs"

    def __init__(self, trainer: GRPOTrainer, functions: list[StepRewardFunc]):
        prepared = [_prepared(each, trainer) for each in functions]
        super().__init__(trainer, prepared, map(_name, functions), trainer.args.step_reward_weights)

    def __call__(self, rows: ScoredRows, steps: torch.Tensor, report: Report) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Weighted sum of the functions for each step of this rank's rows, `(B, N)`, and the sum of the absolute terms;
        NaN where none gave a number.

        Args:
            rows ([`ScoredRows`]):
                The rows.
            steps (`torch.Tensor` of shape `(B, T)`, int64):
                Step of each token; -1 for tokens of no step.
            report ([`Report`]):
                Keeps an error of a function, and what functions log.
        """
        counts = (steps.amax(dim=1) + 1).tolist()
        rewards = torch.full((len(self.functions), len(steps), max(counts)), torch.nan)

        def score(index: int, result: Callable) -> None:
            model = self.functions[index]
            given = _scores(model, steps, rows.output) if isinstance(model, torch.nn.Module) else result()
            _fill(rewards[index], given, counts, self.names[index])

        self.each(rows, report, score)
        for name, own in zip(self.names, rewards, strict=True):
            report.add(_means(name, own))
        weighted = rewards * torch.tensor(self.weights)[:, None, None]
        silent = rewards.isnan().all(dim=0)
        return tuple(terms.nansum(dim=0).masked_fill(silent, torch.nan) for terms in (weighted, weighted.abs()))


def _fill(rewards: torch.Tensor, given: Any, counts: list[int], name: str) -> None:
    """Write the numbers that a function gave to `(B, N)` rewards, None as NaN."""
    if not isinstance(given, list) or len(given) != len(counts):
        got = f"{len(given)} lists" if isinstance(given, list) else type(given).__name__
        raise ValueError(f"{name} must return {len(counts)} lists, one per completion, got {got}.")
    for row, (numbers, count) in enumerate(zip(given, counts, strict=True)):
        try:
            own = torch.tensor([torch.nan if number is None else float(number) for number in numbers])
        except (TypeError, ValueError):
            own = torch.tensor([torch.inf])
        if not isinstance(numbers, list | tuple) or len(own) != count or (own.abs() > LARGEST_REWARD).any():
            raise ValueError(
                f"{name} must return {count} numbers or None for row {row}, one per turn or step, finite and at most "
                f"{LARGEST_REWARD:g} in size, got {numbers!r}."
            )
        rewards[row, :count] = own


def _means(name: str, rewards: torch.Tensor) -> Sums:
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
        _check_vocabulary(function, AutoTokenizer.from_pretrained(function, **known), trainer._tokenizer)
        function = AutoModelForTokenClassification.from_pretrained(function, **options | {"device_map": None})
    elif not isinstance(function, torch.nn.Module):
        return function
    elif name := get_config_model_id(function.config):  # it has none if it was not loaded
        _check_vocabulary(name, AutoTokenizer.from_pretrained(name), trainer._tokenizer)
    if (labels := function.config.num_labels) not in (1, 2):
        raise ValueError(
            f"A process reward model must have one label, a score, or two, of which label 1 is a good step, got "
            f"{labels}. Pass a function that makes one number of them."
        )
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(function, trainer.accelerator)
    return trainer.accelerator.prepare_model(function, evaluation_mode=True, device_placement=True).eval()


def _check_vocabulary(name: str, tokenizer: Any, policy: Any) -> None:
    if tokenizer.get_vocab() != policy.get_vocab():
        raise ValueError(
            f"The process reward model {name} must have the policy's vocabulary, whose token ids it reads; it has "
            f"another one ({len(tokenizer)} tokens, the policy has {len(policy)}). Use a model of the same family."
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
