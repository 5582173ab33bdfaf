"""TEMPO's credit of a large batch beside the update that it is for: forward and backward pass of all its rows.

The update is measured on an eighth of the rows and multiplied: all rows have the same length. Generation is left out,
so a share of a real step is smaller. Half of each group shares a quarter of its completions.
"""

import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu.section import QWEN3_0_6B, Row, main, saved_policy
from benchmarks.packing import time_of
from tempo_trl.credit import tempo_advantages

GROUP = 8


def completions(prompts: int, tokens: int, vocabulary: int) -> torch.Tensor:
    """Token ids of all groups, `(B, T)`."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, vocabulary, (prompts, GROUP, tokens), generator=generator)
    ids[:, : GROUP // 2, : tokens // 4] = ids[:, :1, : tokens // 4]
    return ids.flatten(end_dim=1)


def update(model, ids: torch.Tensor, rows: int) -> None:
    """Forward and backward pass over all rows, a few at a time."""
    for part in ids.split(rows):
        with torch.autocast(ids.device.type, torch.bfloat16):
            model(input_ids=part, labels=part).loss.backward()
    model.zero_grad()


def share(model, prompts: int, tokens: int, rows: int, device: torch.device) -> Row:
    """Time of the credit of all rows, and of the update of an eighth of them, times eight."""
    ids = completions(prompts, tokens, model.config.vocab_size).to(device)
    lengths = torch.full((len(ids),), tokens, device=device)
    rewards = torch.rand(len(ids), generator=torch.Generator().manual_seed(0)).round().to(device)

    def credit() -> torch.Tensor:
        return tempo_advantages(ids, lengths, rewards, GROUP)

    credit(), update(model, ids[:rows], rows)  # warm up
    ours = time_of(credit, device)
    theirs = GROUP * time_of(lambda: update(model, ids[::GROUP], rows), device)
    return f"{prompts} x {GROUP} x {tokens:,}: credit / update", f"{ours:.3f} s / {theirs:.1f} s = {ours / theirs:.3%}"


def rows(device: torch.device, tiny: bool) -> list[Row]:
    sizes = [(2, 32, 4), (2, 64, 2)] if tiny else [(64, 1024, 8), (64, 8192, 1)]
    with saved_policy(QWEN3_0_6B, tiny) as (path, _):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(device)
    model.gradient_checkpointing_enable()
    return [share(model, *size, device) for size in sizes]


if __name__ == "__main__":
    main(rows)
