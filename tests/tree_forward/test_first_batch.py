"""What the first batch is judged by, number by number."""

import math

import pytest
import torch

from tempo_trl.tree_forward.first_batch import LARGEST_DIFFERENCE, MEAN_DIFFERENCE_HALF, PAYING_RATIO, FirstBatch
from tempo_trl.tree_forward.tree_pass import State

from .batches import random_tree_batch
from .models import model_of, trainer_of

FINE = FirstBatch(largest=1e-6, total=1e-4, compared=1000, tokens=200, packed=100)


def test_it_is_measured_on_the_tokens_of_the_completions_alone_with_entropies_where_there_are_some():
    logps, entropies = torch.zeros(2, 3), torch.ones(2, 3)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    theirs = logps + torch.tensor([[0.0, 0.5, 9.0], [0.25, 9.0, 9.0]])
    assert FirstBatch.of((logps, None), (theirs, None), mask, 10, 5) == (0.5, 0.75, 3, 10, 5)
    assert FirstBatch.of((logps, entropies), (theirs, entropies - 1), mask, 10, 5) == (1.0, 3.75, 6, 10, 5)


def test_one_rank_that_is_wrong_is_enough_and_the_ratio_is_that_of_all_tokens():
    wrong = FINE._replace(largest=0.5, tokens=100)
    batch = FirstBatch.of_all_ranks(torch.tensor([FINE, wrong], dtype=torch.float64))
    assert batch.largest == 0.5
    assert batch.ratio == 300 / 200
    assert "up to 0.5 nats" in batch.mistake(half_precision=False)


@pytest.mark.parametrize("half", [False, True])
def test_rounding_is_no_mistake_and_nan_is(half):
    assert FINE.mistake(half) is None
    assert FINE._replace(largest=math.nan, total=math.nan).mistake(half) is not None


def test_full_precision_is_held_by_the_largest_difference_and_half_by_the_mean():
    outlier = FINE._replace(largest=2 * LARGEST_DIFFERENCE)
    assert outlier.mistake(half_precision=False) is not None
    assert outlier.mistake(half_precision=True) is None
    everywhere = FINE._replace(largest=0.1, total=1000 * 2 * MEAN_DIFFERENCE_HALF)
    assert "on average" in everywhere.mistake(half_precision=True)


def test_what_pays_is_told_by_the_token_ratio():
    assert FINE.too_little() is None
    assert "a ratio of 1.20" in FINE._replace(tokens=100 * (PAYING_RATIO - 0.1)).too_little()


def test_bf16_rounds_the_tree_no_further_from_trl_than_is_allowed(tmp_path):
    trainer = trainer_of(model_of("qwen3"), tmp_path, bf16=True)
    ids, mask, width = random_tree_batch(2, 5, prompt_tokens=24, completion_tokens=20, vocabulary=260)
    assert trainer.accelerator.mixed_precision == "bf16"
    trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width, compute_entropy=True)
    assert trainer.tree_pass.state is State.IN_USE
