"""This rank's rows of a batch as TRL sampled and scored them, and their place among the rows of all ranks."""

from typing import NamedTuple

import torch
from trl import GRPOTrainer

from tempo_trl.trainers.replaced import Call
from tempo_trl.trainers.span_rewards import SpanScores


class Place(NamedTuple):
    """
    The position of this rank's rows among those of all ranks, and among the whole groups that they belong to.

    Args:
        near (`slice`): The rows, among those of all ranks, that share a group with a row of this rank.
        own (`slice`): The rows of this rank within `near`.
        owned (`torch.Tensor` of shape `(R,)`, bool): The rows within `near` whose groups begin on this rank.
        straddles (`bool`): Whether groups can be split over ranks. The same on all ranks, for any data.
    """

    near: slice
    own: slice
    owned: torch.Tensor
    straddles: bool

    @classmethod
    def of(cls, rank: int, rows: int, num_generations: int) -> "Place":
        """The place of a rank with `rows` rows. All ranks have equally many, in the order of the sampler."""
        begin, end = rank * rows, (rank + 1) * rows
        first, last = begin // num_generations, -(-end // num_generations)
        near = slice(first * num_generations, last * num_generations)
        groups = torch.arange(first, last).repeat_interleave(num_generations) * num_generations
        own, owned = slice(begin - near.start, end - near.start), (groups >= begin) & (groups < end)
        return cls(near, own, owned, rows % num_generations != 0)


class ScoredRows(NamedTuple):
    """
    This rank's B rows of a batch, as TRL sampled and scored them.

    Args:
        inputs (`list[dict]`): Rows of the dataset.
        output (`dict`): TRL's batch. The trainer writes the credit into it.
        prompts, completions (`list`): Text, or messages, of each row.
        completion_ids (`list[list[int]]`): Token ids without padding.
        sampled (`list[list[int]]`, *optional*): 0 for tokens of tools and environments; None if there are none.
        rewards_per_func (`torch.Tensor` of shape `(N, F)`): Rewards of the rows of all ranks.
        entropies (`torch.Tensor` of shape `(B, T)`, *optional*): Those of the sampling policy, if TRL computed them.
        state_keys (`dict[tuple[int, int], bytes]`): Environments' own keys, by row and turn.
        num_generations (`int`): Rows in a group.
        place ([`Place`]): Their place.
        spans ([`~tempo_trl.trainers.span_rewards.SpanScores`], *optional*): Their criteria; None without
            `span_reward_funcs`.
    """

    inputs: list[dict]
    output: dict
    prompts: list
    completions: list
    completion_ids: list[list[int]]
    sampled: list[list[int]] | None
    rewards_per_func: torch.Tensor
    entropies: torch.Tensor | None
    state_keys: dict[tuple[int, int], bytes]
    num_generations: int
    place: Place
    spans: SpanScores | None = None

    @classmethod
    def of(
        cls,
        trainer: GRPOTrainer,
        output: dict,
        calls: dict[str, list[Call]],
        state_keys: dict,
        spans: SpanScores | None = None,
    ) -> "ScoredRows":
        """The rows of `output`, and what TRL passed to its own methods and got from them."""
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        scored, entropies = calls["_calculate_rewards"][0], None
        # Without old log-probabilities the only forward pass was the reference model's (with LoRA the same module).
        if "old_per_token_logps" in output:
            entropies = calls["_get_per_token_logps_and_entropies"][0].result[1]
        inputs, prompts, completions, completion_ids = scored.arguments
        return cls(
            inputs=inputs,
            output=output,
            prompts=prompts,
            completions=completions,
            completion_ids=completion_ids,
            sampled=calls["_generate"][0].result[2],
            rewards_per_func=scored.result,
            entropies=entropies,
            state_keys=state_keys,
            num_generations=size,
            place=Place.of(trainer.accelerator.process_index, len(completion_ids), size),
            spans=spans,
        )


def loss_mask(inputs: dict) -> torch.Tensor:
    """1 on the tokens of the loss, `(B, T)`: inside a completion, and sampled by the policy."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)
