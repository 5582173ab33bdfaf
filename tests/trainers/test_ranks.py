"""Two real processes: the advantages of all ranks together are those of `credit/` on all completions together."""

import math

import pytest
import torch

from tempo_trl.credit import tempo_advantages

from ..credit.groups import as_tensors
from .launching import run_ranks, torchrun
from .recording import Batch

pytestmark = pytest.mark.matrix

EVALUATION = ("eval_strategy='steps'", "eval_steps=1", "per_device_eval_batch_size=6", "num_generations_eval=3")


def together(batches: list[Batch]) -> tuple[list[list[int]], torch.Tensor, torch.Tensor]:
    """Completion ids, weighted rewards and advantages of all ranks, in sampler order."""
    ids = [row for batch in batches for row in batch.completion_ids]
    rewards = batches[0].rewards_per_func
    summed = rewards.nansum(dim=1).masked_fill(rewards.isnan().all(dim=1), math.nan)
    width = max(map(len, ids))
    advantages = [
        torch.nn.functional.pad(b.output["advantages"], (0, width - b.output["advantages"].shape[1])) for b in batches
    ]
    return ids, summed, torch.cat(advantages)


def assert_credit_is_that_of_all_ranks_together(batches: list[Batch], num_generations: int):
    """The batches of one generation, a rank each, hold the advantages that `credit/` gives to all of their ids."""
    ids, rewards, advantages = together(batches)
    expected = tempo_advantages(*as_tensors(ids, rewards.tolist()), num_generations)
    torch.testing.assert_close(advantages, expected, rtol=1e-4, atol=1e-5)
    assert all(batch.output["advantages"].shape == batch.output["completion_ids"].shape for batch in batches)


def test_advantages_of_groups_that_ranks_split_are_those_of_all_rows_together(tiny_model, tmp_path):
    """Other layouts, and more ranks, are in test_rank_matrix.py."""
    geometry = ("per_device_train_batch_size=6", "num_generations=4", "max_steps=2")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.rank", tiny_model, tmp_path, *geometry, *EVALUATION)
    steps = list(zip(*[[Batch(*batch) for batch in rank["batches"]] for rank in ranks], strict=True))
    assert {batches[0].training for batches in steps} == {True, False}
    for batches in steps:
        assert_credit_is_that_of_all_ranks_together(batches, 4 if batches[0].training else 3)

    # The table and the metrics are the same on both ranks: those of all completions.
    assert ranks[0]["table"] == ranks[1]["table"]
    first, second = ([h for h in rank["history"] if "tempo/added_share" in h] for rank in ranks)
    assert first
    for a, b in zip(first, second, strict=True):
        ours = [name for name in a if name.startswith("tempo/")]
        assert {name: a[name] for name in ours} == {name: b[name] for name in ours}
