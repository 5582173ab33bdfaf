"""Build a [`Batch`] of whole groups from TRL's scored rows. A group may be split over two or more ranks."""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from trl import GRPOTrainer

from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers.batch import Batch
from tempo_trl.trainers.prompt_keys import images_in, prompt_keys
from tempo_trl.trainers.replaced import Call

PADDING = {"turns": -1, "steps": -1, "step_rewards": torch.nan}  # of tensors on ranks with shorter completions


@dataclass(frozen=True)
class Place:
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


def gather_near(
    accelerator: Accelerator, place: Place, tensors: dict[str, torch.Tensor], rows: list[dict]
) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """
    Complete the groups of this rank's rows with the rows of other ranks. Either all ranks communicate or none.

    Args:
        accelerator (`Accelerator`):
            The trainer's accelerator.
        place ([`Place`]):
            The place of this rank's rows.
        tensors (`dict[str, torch.Tensor]`):
            Tensors of shape `(B,)` or `(B, T)` on the accelerator's device, with the same names on all ranks. Those of
            shape `(B, T)` are padded to the longest completion of all ranks.
        rows (`list[dict]`):
            The dataset's B rows.

    Returns:
        Tensors on the CPU, and rows of the dataset.
    """
    if not place.straddles:
        return {name: value.cpu() for name, value in tensors.items()}, rows
    near = {}
    for name, value in tensors.items():
        if value.ndim == 2:
            value = accelerator.pad_across_processes(value, dim=1, pad_index=PADDING.get(name, 0))
        near[name] = accelerator.gather(value)[place.near].cpu()
    return near, gather_object(rows)[place.near]


def turns_of(lengths: torch.Tensor, sampled: list[list[int]] | None, width: int) -> torch.Tensor:
    """
    The assistant turn of each token, `(B, width)`, int64; -1 for tokens of tools and environments and for padding.

    Args:
        lengths (`torch.Tensor` of shape `(B,)`):
            True lengths in tokens.
        sampled (`list[list[int]]`, *optional*):
            1 for each token of a completion that the policy sampled, 0 for a token of a tool or an environment, which
            ends a turn. Defaults to all 1.
        width (`int`):
            Columns of the result.
    """
    turns = torch.full((len(lengths), width), -1)
    for row, length in enumerate(lengths.tolist()):
        own = torch.ones(length, dtype=torch.int64) if sampled is None else torch.tensor(sampled[row][:length])
        begins = own.diff(prepend=own.new_zeros(1)) == 1
        turns[row, :length] = torch.where(own == 1, begins.cumsum(0) - 1, -1)
    return turns


def batch_of(
    trainer: GRPOTrainer,
    inputs: list[dict],
    output: dict,
    calls: dict[str, Call],
    place: Place,
    steps: torch.Tensor,
    per_step: dict[str, torch.Tensor],
) -> Batch:
    """
    The whole groups of which this rank has a row. Every rank must call this.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        inputs (`list[dict]`):
            This rank's rows of the dataset.
        output (`dict`):
            The same rows as TRL scored them.
        calls (`dict[str, Call]`):
            The first calls of `_generate`, of `_calculate_rewards` and, if there was one, of the forward pass, in
            which TRL computed `output`.
        place ([`Place`]):
            The place of this rank's rows.
        steps (`torch.Tensor` of shape `(B, T)`, int64):
            Step of each token; -1 for tokens of no step.
        per_step (`dict[str, torch.Tensor]`):
            Fields of the batch of shape `(B, N)`, the same names on every rank.
    """
    completion_ids = calls["_calculate_rewards"].arguments[3]
    rewards_per_func = calls["_calculate_rewards"].result
    rewards = weighted_rewards(trainer, rewards_per_func)
    rank, device = trainer.accelerator.process_index, output["advantages"].device
    own = slice(rank * len(completion_ids), (rank + 1) * len(completion_ids))
    lengths = torch.tensor([len(ids) for ids in completion_ids])
    turns = turns_in(output, calls)
    tensors = {
        "completion_ids": output["completion_ids"],
        "lengths": lengths.to(device),
        "outcome": output["advantages"].masked_fill(rewards[own].isnan(), torch.nan),
        "prompts": prompt_keys_of(trainer, output, calls).to(device),
        "loss_mask": loss_mask(output),
        "turns": turns.to(device),
        "steps": steps.to(device),
        **{name: values.to(device) for name, values in per_step.items()},
        **_sampled_from(output, calls),
    }
    tensors, rows = gather_near(trainer.accelerator, place, tensors, inputs)
    tensors["loss_mask"] = tensors["loss_mask"].bool()
    most = int(tensors["steps"].max()) + 1  # these are padded to the most steps of all ranks
    tensors |= {name: tensors[name][:, :most] for name in per_step}
    training = trainer.model.training
    return Batch(
        **tensors,
        rewards=rewards[place.near].cpu(),
        rewards_per_func=rewards_per_func[place.near].cpu(),
        num_generations=trainer.num_generations if training else trainer.num_generations_eval,
        columns={name: [row.get(name) for row in rows] for name in dict.fromkeys(n for row in rows for n in row)},
        training=training,
        owned=place.owned,
        grown=trainer.rollout_func.trees if isinstance(trainer.rollout_func, TreeRollout) else None,
    )


def loss_mask(inputs: dict) -> torch.Tensor:
    """1 on the tokens of the loss, `(B, T)`: inside a completion, and sampled by the policy."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)


def weighted_rewards(trainer: GRPOTrainer, rewards_per_func: torch.Tensor) -> torch.Tensor:
    """TRL's weighted sum of the rewards of each row, `(R,)`, NaN where no function scored it."""
    rewards = (rewards_per_func * trainer.reward_weights.to(rewards_per_func.device)).nansum(dim=1)
    return rewards.masked_fill(rewards_per_func.isnan().all(dim=1), torch.nan)


def _sampled_from(output: dict, calls: dict[str, Call]) -> dict[str, torch.Tensor]:
    """Log-probabilities and entropies of the sampling policy, if TRL computed them."""
    found = {}
    for name in ("old_per_token_logps", "sampling_per_token_logps"):
        if name in output:
            found.setdefault("logps", output[name])
    # Without old log-probabilities the only forward pass was the reference model's (with LoRA the same module).
    if "old_per_token_logps" in output:
        entropies = calls["_get_per_token_logps_and_entropies"].result[1]
        found |= {} if entropies is None else {"entropies": entropies}
    return found


def turns_in(output: dict, calls: dict[str, Call]) -> torch.Tensor:
    """The assistant turn of each token of this rank's rows, `(B, T)`: [`turns_of`]."""
    lengths = torch.tensor([len(ids) for ids in calls["_calculate_rewards"].arguments[3]])
    return turns_of(lengths, calls["_generate"].result[2], output["completion_ids"].shape[1])


def prompt_keys_of(trainer: GRPOTrainer, output: dict, calls: dict[str, Call]) -> torch.Tensor:
    """A number for each completion's prompt, which an environment or the user's rollout may change."""
    prompts = calls["_calculate_rewards"].arguments[1]
    observed = trainer.environments or ()  # images of a dataset are the same for the whole group
    images = [list(images_in(prompt)) for prompt in prompts] if observed else ()
    return prompt_keys(output["prompt_ids"], output["prompt_mask"], images)
