"""`python -m tempo_trl.train` with the study's sampler: `python -m benchmarks.language_model.training --config ...`.

Sampling takes half of a step on two cores with transformers' `generate`. Everything else is the trainer's.
"""

import sys
from itertools import groupby
from unittest.mock import patch

from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from benchmarks.language_model import sampling
from tempo_trl.launch.train import main as train


def generate_single_turn(trainer: GRPOTrainer, prompt_ids: list[list[int]], *args) -> tuple[list[list[int]], None]:
    """Completions of tokenized prompts, in place of TRL's method of this name. Equal prompts are adjacent."""
    assert trainer.args.temperature == sampling.TEMPERATURE
    groups = [(ids, len(list(group))) for ids, group in groupby(prompt_ids)]
    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
        found = sampling.sampled(
            model,
            [ids for ids, _ in groups],
            counts=[count for _, count in groups],
            limits=[trainer.max_completion_length] * len(groups),
            eos_token_ids=trainer.eos_token_ids,
            recorder=getattr(getattr(trainer, "credit_func", None), "recorded", None),
        )
    return [ids for own in found for ids in own], None


def main() -> int:
    with patch.object(GRPOTrainer, "_generate_single_turn", generate_single_turn):
        return train()


if __name__ == "__main__":
    sys.exit(main())
