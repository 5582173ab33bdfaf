"""Rewards with a place: functions that judge criteria of a completion, and say where each was decided."""

from collections.abc import Callable

import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_callable_name

from tempo_trl.credit.spans import Criteria, criteria_of
from tempo_trl.rewards.reading import SampledText
from tempo_trl.rewards.span_reward import Places, SpanReward, by_criterion, checked_spans
from tempo_trl.runs.criteria import logged_name
from tempo_trl.runs.messages import valid_text
from tempo_trl.runs.token_places import TokenTexts
from tempo_trl.trainers.report import Report, Sums, summed
from tempo_trl.trainers.reward_functions import RewardFunctions
from tempo_trl.trainers.scored_rows import ScoredRows

SpanRewardFunc = Callable[..., list[list[SpanReward]]]


def mean_of_criteria(prompts: list, **keywords) -> list[float]:
    """
    The reward function that TRL gets where there is no other. [`SpanRewards`] replaces its numbers by the mean of the
    criteria.
    """
    return [0.0] * len(prompts)


def refuse_weights_of_no_reward(args: GRPOConfig | None) -> None:
    """Raise ValueError for `reward_weights` where there are no `reward_funcs`."""
    if (given := getattr(args, "reward_weights", None)) is not None:
        raise ValueError(
            f"`reward_weights` has {len(given)} numbers, expected none: there are no `reward_funcs`, and the reward "
            "of an environment has a weight of 1. Remove it, or set `span_reward_weights`."
        )


def drop_first_reward(trainer: GRPOTrainer) -> None:
    """Remove the first of the reward functions, because the others are the reward: those of environments."""
    del trainer.reward_funcs[0], trainer.reward_func_names[0], trainer.reward_processing_classes[0]
    trainer.reward_weights = trainer.reward_weights[1:]


class SpanRewards(RewardFunctions):
    """
    The criteria of a batch, from functions in TRL's calling convention that also get the completions' `texts`.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`.
        functions (`list`):
            As in [`~tempo_trl.SpanCreditTrainer`].
        are_the_reward (`bool`):
            Whether there is no other reward, so that TRL logs the mean of the criteria.
    """

    argument = "span_reward_funcs"

    def __init__(self, trainer: GRPOTrainer, functions: list[SpanRewardFunc], are_the_reward: bool):
        super().__init__(trainer, functions, map(get_callable_name, functions), trainer.args.span_reward_weights)
        self.are_the_reward = are_the_reward
        self._texts = TokenTexts(trainer._tokenizer)

    def mean_everywhere(self, criteria: Criteria, device: torch.device) -> torch.Tensor:
        """The mean of the criteria as the reward of the rows of all ranks, `(N, 1)`. Every rank must call this."""
        return self._trainer.accelerator.gather(criteria.mean_reward().float().to(device))[:, None]

    def begin(self, rows: ScoredRows) -> None:
        """Start the async functions on a batch, whose texts they get."""
        rows.texts = [self._texts(ids) for ids in rows.completion_ids]
        kept = rows.sampled or [[1] * len(ids) for ids in rows.completion_ids]
        pairs = zip(rows.texts, kept, strict=True)
        super().begin(rows, texts=[SampledText(places.text, places.stretches(own)) for places, own in pairs])

    def __call__(self, rows: ScoredRows, report: Report) -> Criteria:
        """
        The criteria of this rank's rows, when TRL computes their rewards. Every rank must call this.

        All ranks have the same names, and the same number of places.
        """
        judged: list[dict[str, tuple[float, Places]]] = [{} for _ in rows.texts]
        weights: dict[str, float] = {}

        def score(index: int, result: Callable) -> None:
            name = self.names[index]
            given = checked_spans(result(), [places.text for places in rows.texts], name)
            for found, own, places in zip(judged, given, rows.texts, strict=True):
                labelled = {self._label(name, key): value for key, value in by_criterion(own, places.tokens).items()}
                found.update(labelled)
                weights.update(dict.fromkeys(labelled, self.weights[index]))

        self.each(rows, report, score)
        criteria = criteria_of(judged, *_agreed(judged, weights))
        given = criteria.rewards.nansum(dim=0), criteria.rewards.isfinite().sum(dim=0)
        report.add(by_logged_name("mean", criteria, *given))
        return criteria

    def _label(self, function: str, criterion: str) -> str:
        """Name of a criterion among those of all functions."""
        criterion = valid_text(criterion)  # a model may have written it
        return criterion if len(self.functions) == 1 else f"{function}/{criterion}"


def by_logged_name(metric: str, criteria: Criteria, totals: torch.Tensor, counts: torch.Tensor) -> Sums:
    """
    Sums of `(K,)` totals and counts over the criteria that are logged under one name, `spans/NAME/{metric}`. Those
    that only other ranks' rows have are left out.
    """
    names = (f"spans/{logged_name(name)}/{metric}" for name in criteria.names)
    sums = zip(totals.tolist(), counts.tolist(), strict=True)
    return summed((name, own) for name, own in zip(names, sums, strict=True) if own[-1])


def _agreed(judged: list[dict[str, tuple[float, Places]]], weights: dict[str, float]) -> tuple[dict[str, float], int]:
    """The weights of all ranks' criteria by name, in an order that all have, and the most places of one criterion."""
    most = max((len(places) for found in judged for _, places in found.values()), default=0)
    ranks = gather_object([(weights, most)])
    return {name: weight for own, _ in ranks for name, weight in own.items()}, max(1, *(most for _, most in ranks))
