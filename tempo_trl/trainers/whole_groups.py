"""Build a [`Batch`] of whole groups from TRL's scored rows. A group may be split over two or more ranks."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from trl import GRPOTrainer

from tempo_trl.credit.advantages import flat_groups, without_rounding
from tempo_trl.credit.batch import Batch
from tempo_trl.credit.returns import TurnRewards
from tempo_trl.credit.spans import Criteria
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers.agents import image_bytes, images_in, observed_before_steps, seen_ids
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import Place, ScoredRows
from tempo_trl.trainers.steps import delimited_steps

# Of tensors on ranks with shorter completions.
PADDING = {"turns": -1, "steps": -1, "step_rewards": torch.nan, "step_sizes": torch.nan}
PER_STEP = ("observations", "step_rewards", "step_sizes")  # tensors of shape `(B, N)`


def batch_of(trainer: GRPOTrainer, rows: ScoredRows, report: Report) -> Batch:
    """
    The whole groups of which this rank has a row. The `step_reward_funcs` score its rows.

    Every rank must call this.

    Args:
        trainer ([`~tempo_trl.TokenCreditTrainer`]):
            The trainer.
        rows ([`ScoredRows`]):
            This rank's rows.
        report ([`Report`]):
            Keeps errors of the user's functions, and what they log.
    """
    own = _tensors_of(trainer, rows, report)
    columns = rows.inputs if trainer.credit_func is not None or trainer.reads_columns else []
    whole, inputs = gather_groups(trainer.accelerator, rows.place, own, columns)
    whole |= _of_rewards(trainer, rows, whole["advantages"])
    all_rewards = None
    if trainer.scale_rewards == "batch":
        all_rewards = rewards_of_all_ranks(trainer, rows.rewards_per_func, own["steps"], own["step_rewards"])
    most = int(whole["steps"].max()) + 1  # gathered tensors are padded to the most steps of all ranks
    whole |= {name: whole[name][:, :most] for name in PER_STEP if name in whole}
    criteria = _whole_criteria(trainer, rows.place, rows.criteria) if rows.criteria else None
    return Batch(
        **whole | {"loss_mask": whole["loss_mask"].bool()},
        num_generations=rows.num_generations,
        columns={name: [row.get(name) for row in inputs] for name in dict.fromkeys(n for row in inputs for n in row)},
        training=trainer.model.training,
        counted=rows.place.counted,
        tree_rollouts=trainer.rollout_func.trees if isinstance(trainer.rollout_func, TreeRollout) else None,
        all_rewards=all_rewards,
        criteria=criteria,
    )


def _tensors_of(trainer: GRPOTrainer, rows: ScoredRows, report: Report) -> dict[str, torch.Tensor | None]:
    """The tensors of this rank's rows that are gathered, None where there is none. All ranks have the same names."""
    output = rows.output
    lengths = torch.tensor([len(ids) for ids in rows.completion_ids])
    turns = turns_of(lengths, rows.sampled, output["completion_ids"].shape[1])
    steps = turns
    if trainer.args.step_delimiter is not None:
        steps = delimited_steps(trainer._tokenizer, output["completion_ids"], turns, trainer.args.step_delimiter)
    images = list(map(images_in, rows.prompts)) if trainer._is_vlm else ()
    prompts = prompt_keys(output["prompt_ids"], output["prompt_mask"], images)
    seen = seen_ids(rows, turns) if trainer._is_vlm and trainer.sees_answers else None
    observations = step_rewards = step_sizes = None
    if trainer.credit_func is not None or trainer.reads_observations or trainer.sees_answers:
        ids = output["completion_ids"] if seen is None else seen
        observations = observed_before_steps(trainer, rows, ids, turns, steps, prompts, report)
    if trainer.step_rewards:
        step_rewards, step_sizes = trainer.step_rewards(rows, steps, report)
    return {
        "completion_ids": output["completion_ids"],
        "seen_ids": seen,
        "lengths": lengths,
        "advantages": output["advantages"],
        "prompts": prompts,
        "loss_mask": rows.loss_mask,
        "turns": turns,
        "steps": steps,
        "observations": observations,
        "step_rewards": step_rewards,
        "step_sizes": step_sizes,
        "logps": output.get("old_per_token_logps", output.get("sampling_per_token_logps")),
        "entropies": rows.entropies,
    }


def _of_rewards(trainer: GRPOTrainer, rows: ScoredRows, advantages: torch.Tensor) -> dict[str, torch.Tensor]:
    """What follows from the rewards of whole groups, with TRL's `(R,)` advantages made NaN where unscorable."""
    rewards_per_func = rows.rewards_per_func[rows.place.group_rows].cpu()
    rewards = weighted_rewards(trainer, rewards_per_func)
    advantages = advantages.masked_fill(rewards.isnan(), torch.nan)
    outcome = without_rounding(advantages, flat_outcomes(trainer, rewards_per_func, rows.num_generations))
    return {
        "rewards": rewards,
        "rewards_per_func": rewards_per_func,
        "reward_sizes": reward_sizes(trainer, rewards_per_func),
        "advantages": outcome if trainer.args.skip_zero_advantages else advantages,
        "outcome": outcome,
    }


def _whole_criteria(trainer: GRPOTrainer, place: Place, own: Criteria) -> Criteria:
    """The criteria of whole groups. Every rank must call this."""
    whole, all_rewards = {name: getattr(own, name) for name in ("rewards", "starts", "ends")}, None
    if not own.names:  # on all ranks
        empty = {name: part.new_zeros(len(place.counted), *part.shape[1:]) for name, part in whole.items()}
        return own._replace(**empty)
    whole, _ = gather_groups(trainer.accelerator, place, whole, [])
    if trainer.scale_rewards == "batch":
        all_rewards = trainer.accelerator.gather(own.rewards.to(trainer.accelerator.device)).cpu()
    return own._replace(**whole, all_rewards=all_rewards)


def gather_groups(
    accelerator: Accelerator, place: Place, tensors: dict[str, torch.Tensor | None], rows: list[dict]
) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """
    Complete the groups of this rank's rows with the rows of other ranks. Either all ranks communicate or none.

    Args:
        accelerator (`Accelerator`):
            The trainer's accelerator.
        place ([`Place`]):
            The place of this rank's rows.
        tensors (`dict[str, torch.Tensor]`):
            Tensors of shape `(B,)`, `(B, T)` or `(B, K, P)`; the same ones on all ranks, None where there is none.
            Those of shape `(B, T)` are padded to the longest completion of all ranks.
        rows (`list[dict]`):
            The dataset's B rows; empty on all ranks if none are needed.

    Returns:
        Tensors on the CPU, and rows of the dataset.
    """
    tensors = {name: value for name, value in tensors.items() if value is not None}
    if not place.straddles:
        # A copy on a CPU, too: what a credit function changes in place must not reach the loss.
        return {name: value.to("cpu", copy=True) for name, value in tensors.items()}, rows
    gathered = {}
    for name, value in tensors.items():
        value = value.to(accelerator.device)
        if value.ndim == 2:
            value = accelerator.pad_across_processes(value, dim=1, pad_index=PADDING.get(name, 0))
        gathered[name] = accelerator.gather(value)[place.group_rows].cpu()
    return gathered, gather_object(rows)[place.group_rows] if rows else rows


def rewards_of_all_ranks(
    trainer: GRPOTrainer, rewards_per_func: torch.Tensor, steps: torch.Tensor, step_rewards: torch.Tensor | None
) -> TurnRewards:
    """
    The rewards of the rows of all ranks. Every rank must call this.

    Args:
        trainer ([`~tempo_trl.TokenCreditTrainer`]):
            The trainer.
        rewards_per_func (`torch.Tensor` of shape `(N, F)`):
            Rewards of the rows of all ranks.
        steps (`torch.Tensor` of shape `(B, T)`):
            Step of each token of this rank's rows.
        step_rewards (`torch.Tensor` of shape `(B, n)`, *optional*):
            Rewards of their steps.
    """
    accelerator, rewards = trainer.accelerator, weighted_rewards(trainer, rewards_per_func).cpu()
    count = accelerator.gather((steps.amax(dim=1) + 1).to(accelerator.device)).cpu()
    column = torch.arange(int(count.max()))
    turns = torch.where(column < count[:, None], column, -1)
    if step_rewards is None:
        return TurnRewards(rewards, turns)
    padded = accelerator.pad_across_processes(step_rewards.to(accelerator.device), dim=1, pad_index=torch.nan)
    return TurnRewards(rewards, turns, accelerator.gather(padded).cpu()[:, : len(column)])


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
    own = np.zeros((len(lengths), width), dtype=bool)
    for row, length in enumerate(lengths.tolist()):
        own[row, :length] = True if sampled is None else np.fromiter(sampled[row], bool, length)
    begins = np.diff(own, axis=1, prepend=False) & own
    return torch.from_numpy(np.where(own, begins.cumsum(axis=1) - 1, -1))


def prompt_keys(prompt_ids: torch.Tensor, prompt_mask: torch.Tensor, images: Sequence[Iterable] = ()) -> torch.Tensor:
    """
    A number for each prompt: equal prompts have equal numbers, on every rank.

    Args:
        prompt_ids, prompt_mask (`torch.Tensor` of shape `(B, P)`):
            Token ids, and a mask that is 0 on padding.
        images (`Sequence` of `B` iterables, *optional*):
            Images of each prompt. They are compared, too, because different images have the same tokens.

    Returns:
        `torch.Tensor` of shape `(B,)`, int64, on the CPU: 64 bits of a hash.
    """
    ids, inside = prompt_ids.cpu().numpy(), prompt_mask.cpu().numpy().astype(bool)
    keys = []
    for i, (row, kept) in enumerate(zip(ids, inside, strict=True)):
        digest = hashlib.blake2b(row[kept].tobytes(), digest_size=8)
        for image in images[i] if images else ():
            digest.update(image_bytes(image))
        keys.append(int.from_bytes(digest.digest(), "little", signed=True))
    return torch.tensor(keys, dtype=torch.int64)


def flat_outcomes(trainer: GRPOTrainer, rewards_per_func: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Groups in which TRL's outcome can only be rounding: `(groups,)`, bool. Of `(R, F)` rewards of whole groups."""
    terms = rewards_per_func * trainer.reward_weights.cpu()
    if trainer.multi_objective_aggregation == "normalize_then_sum":
        return flat_groups(terms, num_generations).all(dim=1)
    sizes = reward_sizes(trainer, rewards_per_func)
    return flat_groups(weighted_rewards(trainer, rewards_per_func), num_generations, sizes)


def reward_sizes(trainer: GRPOTrainer, rewards_per_func: torch.Tensor) -> torch.Tensor:
    """Sum of the absolute weighted rewards of each row, `(R,)`, to which the rounding of TRL's sum is relative."""
    return (rewards_per_func * trainer.reward_weights.cpu()).abs().nansum(dim=1)


def weighted_rewards(trainer: GRPOTrainer, rewards_per_func: torch.Tensor) -> torch.Tensor:
    """TRL's weighted sum of the rewards of each row, `(R,)`, NaN where no function scored it."""
    rewards = (rewards_per_func * trainer.reward_weights.to(rewards_per_func.device)).nansum(dim=1)
    return rewards.masked_fill(rewards_per_func.isnan().all(dim=1), torch.nan)
