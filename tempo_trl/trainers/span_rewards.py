"""Rewards with a place: functions that judge criteria of a completion, and say where each was decided."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from operator import index as integer
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer
from trl.trainer.utils import get_callable_name

from tempo_trl.credit.spans import Criteria
from tempo_trl.rewards.span_reward import SpanReward
from tempo_trl.trainers.failures import Failures
from tempo_trl.trainers.replaced import replaced
from tempo_trl.trainers.reward_functions import Logged, RewardFunctions
from tempo_trl.trainers.token_places import TokenPlaces, TokenTexts

SpanRewardFunc = Callable[..., list[list[SpanReward]]]
Places = list[tuple[int, int]]  # of a criterion in a completion: the first token, and the one after the last


def criteria(prompts: list, **keywords) -> list[float]:
    """
    The reward function that TRL gets where there is no other. [`SpanRewards`] replaces its numbers by the mean of the
    criteria.
    """
    return [0.0] * len(prompts)


def drop_first_reward(trainer: GRPOTrainer) -> bool:
    """Remove the first of the reward functions, because the others are the reward. Returns False, for "not needed"."""
    del trainer.reward_funcs[0], trainer.reward_func_names[0], trainer.reward_processing_classes[0]
    trainer.reward_weights = trainer.reward_weights[1:]
    return False


class SpanScores(NamedTuple):
    """
    What the `span_reward_funcs` made of this rank's rows.

    Args:
        criteria ([`~tempo_trl.credit.spans.Criteria`]): Those of this rank's rows. All ranks have the same names, and
            the same number of places.
        metrics: (numerator, denominator) by name, to be summed over ranks.
        columns: What functions add to the table of completions with `log_extra`, a value per row.
    """

    criteria: Criteria
    metrics: dict[str, tuple[float, float]]
    columns: dict[str, list]


class SpanRewards:
    """
    The criteria of a batch, from functions in TRL's calling convention that also get the completions' `texts`.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`.
        functions (`list`):
            As in [`~tempo_trl.SpanCreditTrainer`].
        are_the_reward (`bool`):
            Whether there is no other reward, so that TRL logs the mean of the criteria.

    Raises:
        ValueError: if the weights do not fit the functions.
    """

    def __init__(self, trainer: GRPOTrainer, functions: list[SpanRewardFunc], are_the_reward: bool):
        names, weights = list(map(get_callable_name, functions)), trainer.args.span_reward_weights
        self._trainer, self.are_the_reward = trainer, are_the_reward
        self._functions = RewardFunctions(trainer, "span_reward_funcs", functions, names, weights)
        self._texts = TokenTexts(trainer._tokenizer)

    @contextmanager
    def recorded(self, failures: Failures) -> Iterator[list[SpanScores]]:
        """
        Judges a batch in the block, when TRL computes its rewards, and adds the scores to the list.

        Args:
            failures ([`Failures`]): Keeps an error of a function.
        """
        found, theirs = [], self._trainer._calculate_rewards

        def calculate_rewards(inputs, prompts, completions, completion_ids):
            rewards = theirs(inputs, prompts, completions, completion_ids)
            scores = self(inputs, prompts, completions, completion_ids, failures)
            found.append(scores)
            if not self.are_the_reward:
                return rewards
            own = scores.criteria.mean_reward().float().to(rewards.device)
            return self._trainer.accelerator.gather(own)[:, None]

        with replaced(self._trainer, _calculate_rewards=calculate_rewards):
            yield found

    def __call__(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids: list, failures: Failures
    ) -> SpanScores:
        """Judge this rank's rows. Every rank must call this."""
        ours, logged = self._functions, Logged()
        places = [self._texts(ids) for ids in completion_ids]
        texts = [place.text for place in places]
        keywords = ours.keywords(inputs, prompts, completions, completion_ids, logged) | {"texts": texts}
        judged: list[dict[str, tuple[float, Places]]] = [{} for _ in texts]
        weights: dict[str, float] = {}

        def score(index: int) -> None:
            name = ours.names[index]
            given = checked_spans(ours.result(index, keywords), texts, name)
            for found, own, place in zip(judged, given, places, strict=True):
                found |= {self._label(name, key): value for key, value in _by_criterion(own, place)}
            weights.update((key, ours.weights[index]) for found in judged for key in found if key not in weights)

        ours.each(failures, score)
        criteria = _criteria(judged, *_agreed(judged, weights))
        means = {name: _sum(column) for name, column in zip(criteria.names, criteria.rewards.T, strict=True)}
        return SpanScores(criteria, logged.metrics | {f"spans/{k}/mean": v for k, v in means.items()}, logged.columns)

    def _label(self, function: str, criterion: str) -> str:
        """Name of a criterion among those of all functions."""
        return criterion if len(self._functions.functions) == 1 else f"{function}/{criterion}"


def checked_spans(given: Any, texts: Sequence[str], name: str) -> list[list[SpanReward]]:
    """
    Validate what a span reward function returned.

    Args:
        given: The return value.
        texts (`list[str]`): The completions' texts.
        name (`str`): The function, for messages.

    Raises:
        ValueError: with the row and the criterion, what was got and what is expected.
    """
    if not isinstance(given, list) or len(given) != len(texts):
        got = f"{len(given)} lists" if isinstance(given, list) else type(given).__name__
        raise ValueError(f"{name} must return {len(texts)} lists of SpanReward, one per completion, got {got}.")
    for row, (spans, text) in enumerate(zip(given, texts, strict=True)):
        if not isinstance(spans, list | tuple) or isinstance(spans, SpanReward):
            raise ValueError(f"{name} must return a list of SpanReward for row {row}, got {spans!r}.")
        for span in spans:
            fault = _fault(span, len(text))
            if fault:
                raise ValueError(f"{name}, row {row}: {fault}")
        _refuse_contradictions(spans, f"{name}, row {row}")
    return given


def _fault(span: Any, length: int) -> str | None:
    """What is wrong with a [`SpanReward`] of a completion of `length` characters."""
    if not isinstance(span, SpanReward):
        return f"expected a SpanReward(name, reward, start, end), got {type(span).__name__}: {span!r}."
    name, reward, start, end = span
    if not isinstance(name, str) or not name:
        return f"the name of a criterion must be a text, got {name!r}."
    if reward is not None and not (isinstance(reward, Real) and math.isfinite(reward)):
        return f"the reward of {name!r} must be a finite number, or None if it was not judged, got {reward!r}."
    if (start is None) != (end is None):
        return f"{name!r} must have a start and an end, or neither, got start {start!r} and end {end!r}."
    if start is None:
        return None
    if not _is_integer(start) or not _is_integer(end):
        return f"start and end of {name!r} must be integers, got {start!r} and {end!r}."
    if not 0 <= start < end <= length:
        return (
            f"the place of {name!r} must have 0 <= start < end <= {length}, the length of the completion's text "
            f"(`texts`), got start {start} and end {end}. Use None for both if the criterion has no place."
        )
    return None


def _is_integer(value: Any) -> bool:
    try:
        integer(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _refuse_contradictions(spans: Sequence[SpanReward], where: str) -> None:
    """Raise ValueError for two entries of one criterion that are not two places of it."""
    first: dict[str, SpanReward] = {}
    seen = set()
    for span in spans:
        known = first.setdefault(span.name, span)
        if (span.name, span.start, span.end) in seen:
            raise ValueError(f"{where}: {span.name!r} stands twice with the same place ({span.start}, {span.end}).")
        seen.add((span.name, span.start, span.end))
        if known.reward != span.reward or (known.start is None) != (span.start is None):
            raise ValueError(
                f"{where}: {known} and {span} have one name. Two places of one criterion must have the same reward, "
                "and each a start and an end. Give different criteria different names."
            )


def _by_criterion(spans: Sequence[SpanReward], place: TokenPlaces) -> Iterator[tuple[str, tuple[float, Places]]]:
    """The reward and the places in tokens of each criterion of a completion."""
    for name in dict.fromkeys(span.name for span in spans):
        own = [span for span in spans if span.name == name]
        reward = math.nan if own[0].reward is None else float(own[0].reward)
        yield name, (reward, [place.tokens(span.start, span.end) for span in own if span.start is not None])


def _agreed(judged: list[dict[str, tuple[float, Places]]], weights: dict[str, float]) -> tuple[dict[str, float], int]:
    """The weights of all ranks' criteria by name, in an order that all have, and the most places of one criterion."""
    most = max((len(places) for found in judged for _, places in found.values()), default=0)
    ranks = gather_object([(weights, most)])
    return {name: weight for own, _ in ranks for name, weight in own.items()}, max(1, *(most for _, most in ranks))


def _criteria(judged: list[dict[str, tuple[float, Places]]], weights: dict[str, float], most: int) -> Criteria:
    """The criteria of this rank's rows, with the columns of all ranks."""
    shape = len(judged), len(weights)
    rewards, places = torch.full(shape, torch.nan), torch.full((*shape, most, 2), -1)
    column = {name: k for k, name in enumerate(weights)}
    for row, found in enumerate(judged):
        for name, (reward, own) in found.items():
            rewards[row, column[name]] = reward
            if own:
                places[row, column[name], : len(own)] = torch.tensor(own)
    weight = torch.tensor(list(weights.values()), dtype=torch.float64)
    return Criteria(tuple(weights), rewards, places[..., 0], places[..., 1], weight)


def _sum(rewards: torch.Tensor) -> tuple[float, float]:
    """Sum and number of the judged rewards."""
    return rewards.nansum().item(), int((~rewards.isnan()).sum())
