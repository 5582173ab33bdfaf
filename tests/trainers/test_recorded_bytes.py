"""What a rank sends of a recorded tree."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import torch

from tempo_trl.credit.batch import Credit
from tempo_trl.trainers.recorder import Recorder
from tempo_trl.trainers.scored_rows import Place, ScoredRows

from ..credit.rollouts import Rollouts
from .test_agent_credit import batch_of

ROWS, TOKENS = 4, 2048


def test_a_recorded_token_takes_at_most_twenty_bytes():
    """Its id, advantage, TD error and entropy in four bytes each, two of its turn, and one of the loss mask."""
    args = SimpleNamespace(log_trees_steps=10, report_to=[])
    trainer = SimpleNamespace(args=args, accelerator=SimpleNamespace(process_index=0))
    numbers, ones = torch.randn(ROWS, TOKENS), torch.ones(ROWS, TOKENS, dtype=torch.int64)
    rollouts = Rollouts(0, groups=1, size=ROWS)
    rollouts.ids, rollouts.lengths = torch.randint(0, 150_000, (ROWS, TOKENS)), torch.full((ROWS,), TOKENS)
    rollouts.turns, rollouts.observations = torch.zeros_like(ones), torch.ones(ROWS, 1, dtype=torch.int64)
    batch = replace(batch_of(rollouts), entropies=numbers)
    scored = ScoredRows(
        inputs=[{}] * ROWS,
        output={"advantages": numbers, "completion_mask": ones},
        prompts=["?"] * ROWS,
        completions=["!"] * ROWS,
        completion_ids=batch.completion_ids.tolist(),
        sampled=None,
        rewards_per_func=batch.rewards_per_func,
        entropies=numbers,
        state_keys={},
        num_generations=ROWS,
        place=Place.of(0, ROWS, ROWS),
    )
    rows = Recorder(trainer)._own_rows(batch, scored, Credit(numbers, numbers), ROWS)
    assert len(pickle.dumps(rows)) / (ROWS * TOKENS) < 20
