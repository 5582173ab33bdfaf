"""TEMPO's step beside GRPO's: they take turns on the same weights, and the credit that trained is computed again.

bf16, transformers' generation, completions of one length, an untrained Qwen3 of the size of Qwen3-0.6B. Credit of the
device's tensors is compared with that of the CPU's, and what trained with both.
"""

import tempfile
from statistics import median
from typing import NamedTuple

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOTrainer

from benchmarks.gpu.section import QWEN3_0_6B, QWEN3_TINY, Meter, Row, main, wait_for
from benchmarks.learning.policy import character_tokenizer
from benchmarks.training_step import GROUP, TimedTrainer, configured, random_reward
from tempo_trl.credit import tempo_advantages

WARM_UP = 2  # steps that are not measured, one of each method
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}  # TRL's scalars are float32, ours float64: as in tests/trainers


class Size(NamedTuple):
    """A model, and the completions of a step."""

    completions: int
    tokens: int
    model: dict


SMALL, TINY = Size(64, 128, QWEN3_0_6B), Size(16, 16, QWEN3_TINY)


class Batch(NamedTuple):
    """A batch that TEMPO has scored, as it lay on the device."""

    ids: torch.Tensor
    lengths: torch.Tensor
    rewards: torch.Tensor
    advantages: torch.Tensor


class PairedTrainer(TimedTrainer):
    """A step of TEMPO, then one of GRPO. Keeps TEMPO's batches, and the seconds that were ours after each."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches: list[Batch] = []
        self.ours_after: list[float] = []

    def _assign_credit(self, rows, *rest):
        device = rows.output["advantages"].device
        wait_for(device)  # what is still queued is TRL's
        lengths = torch.tensor([len(ids) for ids in rows.completion_ids], device=device)
        self.scored = lengths, rows.rewards_per_func[:, 0]
        super()._assign_credit(rows, *rest)

    def _generate_and_score_completions(self, inputs):
        if self.state.global_step % 2:
            return GRPOTrainer._generate_and_score_completions(self, inputs)
        output = super()._generate_and_score_completions(inputs)
        self.batches.append(Batch(output["completion_ids"], *self.scored, output["advantages"]))
        self.ours_after.append(self.ours)
        return output


def train(device: torch.device, size: Size, pairs: int) -> tuple[PairedTrainer, Meter]:
    """A run of `pairs` measured pairs of steps."""
    torch.manual_seed(0)
    model, meter = Qwen3ForCausalLM(Qwen3Config(**size.model)), Meter(device)
    prompts = Dataset.from_dict({"prompt": [f"{a}+{b}?" for a in range(10) for b in range(10)]})
    with tempfile.TemporaryDirectory() as folder:
        options = {"use_cpu": device.type == "cpu", "bf16": True}
        options["top_k"] = 2  # an untrained model would part at every token
        args = configured(folder, size.completions, size.tokens, WARM_UP + 2 * pairs, **options)
        tokenizer = character_tokenizer()
        trainer = PairedTrainer(model, random_reward, args, prompts, processing_class=tokenizer, callbacks=[meter])
        trainer.train()
    return trainer, meter


def differences(batches: list[Batch]) -> tuple[float, float]:
    """Largest difference of credit between device and CPU, and between what trained and the CPU's credit.

    Raises:
        AssertionError: device and CPU differ at all, or what trained differs by more than `TOLERANCE`.
    """
    apart, trained = 0.0, 0.0
    for batch in batches:
        there = tempo_advantages(batch.ids, batch.lengths, batch.rewards, GROUP).cpu()
        here = tempo_advantages(batch.ids.cpu(), batch.lengths.cpu(), batch.rewards.cpu(), GROUP)
        torch.testing.assert_close(there, here, rtol=0, atol=0)
        torch.testing.assert_close(batch.advantages.cpu(), here, **TOLERANCE)
        apart = max(apart, (there - here).abs().max().item())
        trained = max(trained, (batch.advantages.cpu() - here).abs().max().item())
    return apart, trained


def figures(trainer: PairedTrainer, meter: Meter) -> list[Row]:
    tempo, grpo = meter.seconds[WARM_UP::2], meter.seconds[WARM_UP + 1 :: 2]
    apart, trained = differences(trainer.batches)
    ours = trainer.ours_after[-1] - trainer.ours_after[0]
    peaks = [max(meter.peak[first::2]) / 2**30 for first in (WARM_UP, WARM_UP + 1)]
    memory = f"{peaks[0]:.2f} / {peaks[1]:.2f} GiB" if meter.device.type == "cuda" else "not measured on a CPU"
    ratios = [with_tree / without for with_tree, without in zip(tempo, grpo, strict=True)]
    name = meter.device.type.upper()
    return [
        (f"TEMPO's step / GRPO's, median of {len(ratios)} pairs", f"{median(ratios):.3f}"),
        ("... least and most", f"{min(ratios):.3f} to {max(ratios):.3f}"),
        ("our share of TEMPO's step", f"{100 * ours / sum(tempo):.2f} %"),
        ("peak memory of a step, TEMPO / GRPO", memory),
        (f"credit of the {name}'s tensors, largest difference from the CPU's", f"{apart:g} (expected exactly 0)"),
        ("advantages used, largest difference from the CPU's", f"{trained:.1e} (expected at most 1e-5 + 1e-4 of it)"),
    ]


def rows(device: torch.device, tiny: bool) -> list[Row]:
    return figures(*train(device, TINY if tiny else SMALL, pairs=2 if tiny else 4))


if __name__ == "__main__":
    main(rows)
