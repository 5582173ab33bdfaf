"""`python -m tempo_trl.train`, quicker on a CPU: `python -m benchmarks.language_model.training --config ...`.

Sampling takes half of a step on two cores with transformers' `generate`, so the demo's sampler takes its place. The
gradient of attention takes three times as long in bfloat16 as in float32 there (PyTorch 2.13, 45 queries, 125 keys:
3.3 and 1.0 ms), so it is computed in float32. The loss of an evaluation, which nobody reads, is left out: it takes
more time than sampling, and most of the memory. Freed memory is given back after each step. Everything else is the
trainer's.
"""

import ctypes
import sys

import torch
import torch.nn.functional as F
from transformers import TrainerCallback
from trl import GRPOTrainer

from tempo_trl.demo.sampling import sample_quickly_on_a_cpu
from tempo_trl.launch.train import main


def attend_in_float32_on_a_cpu() -> None:
    """Let attention in bfloat16 with a gradient compute in float32 on the CPU. It still returns bfloat16."""
    theirs = F.scaled_dot_product_attention

    def attention(query, key, value, attn_mask=None, **options):
        if query.device.type != "cpu" or not torch.is_grad_enabled() or query.dtype != torch.bfloat16:
            return theirs(query, key, value, attn_mask=attn_mask, **options)
        with torch.autocast("cpu", enabled=False):
            found = theirs(query.float(), key.float(), value.float(), attn_mask=attn_mask, **options)
        return found.to(query.dtype)

    F.scaled_dot_product_attention = attention


def evaluate_without_a_loss() -> None:
    """Let evaluations of TRL's trainers have answers and rewards alone."""
    theirs = GRPOTrainer._compute_loss

    def loss(trainer, model, inputs):
        return theirs(trainer, model, inputs) if trainer.model.training else torch.zeros(())

    GRPOTrainer._compute_loss = loss


class MemoryGivenBack(TrainerCallback):
    """Gives freed memory back to the system, which the allocator keeps in pieces: 60 steps grew from 6 to 12 GB."""

    def on_step_end(self, args, state, control, **kwargs):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc's
            libc.malloc_trim(0)


if __name__ == "__main__":
    sample_quickly_on_a_cpu()
    attend_in_float32_on_a_cpu()
    evaluate_without_a_loss()
    sys.exit(main(callbacks=[MemoryGivenBack()]))
