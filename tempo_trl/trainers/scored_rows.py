"""This rank's rows of a batch as TRL samples and scores them, and their place among the rows of all ranks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from trl import GRPOTrainer

from tempo_trl.credit.spans import Criteria
from tempo_trl.runs.token_places import TokenPlaces


class Place(NamedTuple):
    """
    The position of this rank's rows among those of all ranks, and among the whole groups that they belong to.

    Args:
        group_rows (`slice`): The rows, among those of all ranks, that share a group with a row of this rank.
        own (`slice`): The rows of this rank within `group_rows`.
        counted (`torch.Tensor` of shape `(R,)`, bool): The rows within `group_rows` whose groups begin on this rank.
        straddles (`bool`): Whether groups can be split over ranks. The same on all ranks, for any data.
    """

    group_rows: slice
    own: slice
    counted: torch.Tensor
    straddles: bool

    @classmethod
    def of(cls, rank: int, rows: int, num_generations: int) -> "Place":
        """The place of a rank with `rows` rows. All ranks have equally many, in the order of the sampler."""
        begin, end = rank * rows, (rank + 1) * rows
        first, last = begin // num_generations, -(-end // num_generations)
        group_rows = slice(first * num_generations, last * num_generations)
        groups = torch.arange(first, last).repeat_interleave(num_generations) * num_generations
        own, counted = slice(begin - group_rows.start, end - group_rows.start), (groups >= begin) & (groups < end)
        return cls(group_rows, own, counted, rows % num_generations != 0)


@dataclass
class ScoredRows:
    """
    This rank's B rows of a batch, as TRL samples and scores them.

    [`witnessed`] fills them in with what TRL's own methods get and return.

    Args:
        inputs (`list[dict]`): Rows of the dataset.
        prompts, completions (`list`): Text, or messages, of each row.
        completion_ids (`list[list[int]]`): Token ids without padding.
        sampled (`list[list[int]]`, *optional*): 0 for tokens of tools and environments; None if there are none.
        rewards_per_func (`torch.Tensor` of shape `(N, F)`): Rewards of the rows of all ranks.
        entropies (`torch.Tensor` of shape `(B, T)`, *optional*): Those of the sampling policy, if TRL computed them.
        state_keys (`dict[tuple[int, int], bytes]`): Environments' own keys, by row and turn.
        texts (`list[TokenPlaces]`): Their texts and the places of their tokens, for the `span_reward_funcs`.
        calls (`dict`): Of the functions of `span_reward_funcs` and `step_reward_funcs`, from before TRL scores them.
        criteria ([`~tempo_trl.credit.spans.Criteria`], *optional*): What the `span_reward_funcs` judged in them.
        output (`dict`): TRL's batch. The trainer writes the credit into it.
        loss_mask (`torch.Tensor` of shape `(B, T)`): TRL's, before the credit removes any token.
        num_generations (`int`): Rows in a group.
        place ([`Place`]): Their place.
    """

    inputs: list[dict] = field(default_factory=list)
    prompts: list = field(default_factory=list)
    completions: list = field(default_factory=list)
    completion_ids: list[list[int]] = field(default_factory=list)
    sampled: list[list[int]] | None = None
    rewards_per_func: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    state_keys: dict[tuple[int, int], bytes] = field(default_factory=dict)
    texts: list[TokenPlaces] = field(default_factory=list)
    calls: dict[str, Any] = field(default_factory=dict)
    criteria: Criteria | None = None
    output: dict = field(default_factory=dict)
    loss_mask: torch.Tensor | None = None
    num_generations: int = 0
    place: Place | None = None

    def completed(self, trainer: GRPOTrainer, output: dict) -> "ScoredRows":
        """These rows with TRL's batch and their place."""
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        place = Place.of(trainer.accelerator.process_index, len(self.completion_ids), size)
        # Without old log-probabilities the only forward pass was the reference model's (with LoRA the same module).
        entropies = self.entropies if "old_per_token_logps" in output else None
        mask = loss_mask(output)
        return replace(self, output=output, loss_mask=mask, num_generations=size, place=place, entropies=entropies)


@contextmanager
def witnessed(trainer: GRPOTrainer, rows: ScoredRows, judge: Callable | None = None) -> Iterator[None]:
    """
    Notes in the rows what TRL samples and scores in the block, by its own methods or those of a user's subclass.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer that scores.
        rows ([`ScoredRows`]):
            The rows.
        judge (`Callable`, *optional*):
            Called with the rows and the rewards of all ranks once they are known; returns the rewards that TRL gets.
    """
    generate, score = trainer._generate, trainer._calculate_rewards
    forward = trainer._get_per_token_logps_and_entropies

    def generated(prompts: list) -> tuple:
        result = generate(prompts)
        rows.sampled = result[2]
        return result

    def scored(inputs: list[dict], prompts: list, completions: list, completion_ids: list) -> torch.Tensor:
        rows.inputs, rows.prompts, rows.completions = inputs, prompts, completions
        rows.completion_ids = [[*ids] for ids in completion_ids]  # a reward function may change its own
        for functions in filter(None, (trainer.span_rewards, trainer.step_rewards)):
            functions.begin(rows)  # their async functions run beside TRL's
        rewards = score(inputs, prompts, completions, completion_ids)
        rows.rewards_per_func = judge(rows, rewards) if judge else rewards
        return rows.rewards_per_func

    def computed(model, *args, **kwargs) -> tuple:
        if model is trainer.model:  # whose head computes entropies anyway, unlike the reference model's
            kwargs["compute_entropy"] = True
        result = forward(model, *args, **kwargs)
        rows.entropies = result[1] if rows.entropies is None else rows.entropies
        return result

    changes = {"_generate": generated, "_calculate_rewards": scored, "_get_per_token_logps_and_entropies": computed}
    with patch.multiple(trainer, **changes):
        yield


def loss_mask(inputs: dict) -> torch.Tensor:
    """1 on the tokens of the loss, `(B, T)`: inside a completion, and sampled by the policy."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)
