"""Compare credit with the known cause of failure: the first slip of a wrong solution."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tempo_trl.credit import prefix_values, td_errors
from tempo_trl.demo.task import first_slip
from tempo_trl.report.group import padded

END = 0  # represents the EOS token: no character has this code


@dataclass(frozen=True)
class Generation:
    """The completions of one generation batch: prompts, texts and rewards. The rows of a group are adjacent."""

    prompts: list[str]
    completions: list[str]
    rewards: torch.Tensor


def read_generations(folder: Path, updates_per_generation: int) -> list[Generation]:
    """A run's training generations, from TRL's parquet files of completions, in order."""
    files = sorted((folder / "completions").glob("completions_*.parquet"))
    steps = {int(file.stem.split("_")[1]): file for file in files}
    # The file of a step with an evaluation contains the evaluation: read each generation at its first update.
    firsts = [file for step, file in steps.items() if step % updates_per_generation == 1]
    tables = [pd.read_parquet(file) for file in firsts]
    return [
        Generation(
            t["prompt"].tolist(), t["completion"].tolist(), torch.tensor(t["correct_answer"].to_numpy()).float()
        )
        for t in tables
    ]


def as_ids(completions: list[str], max_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded character codes, with the EOS token that TRL's text omits; and true lengths."""
    rows = [[ord(c) for c in text] + [END] * (len(text) < max_length) for text in completions]
    return padded(rows, torch.long, END), torch.tensor([len(row) for row in rows])


def slip_shares(generation: Generation, num_generations: int, max_length: int) -> np.ndarray:
    """
    Negative credit of a generation as ((TD on first slips, total TD), (outcome on first slips, total outcome)).

    TD errors are those of TEMPO; the outcome is GRPO's (r - mean), the same on every token of a completion.
    """
    ids, lengths = as_ids(generation.completions, max_length)
    td = td_errors(prefix_values(ids, lengths, generation.rewards, num_generations), lengths)
    groups = generation.rewards.view(-1, num_generations)
    outcome = (groups - groups.mean(dim=1, keepdim=True)).view(-1, 1)
    inside = torch.arange(ids.shape[1]) < lengths[:, None]
    slip = torch.zeros_like(inside)
    for row, (prompt, completion) in enumerate(zip(generation.prompts, generation.completions, strict=True)):
        place = first_slip(prompt, completion)
        if place is not None and place < lengths[row]:
            slip[row, place] = True
    lost = [-(credit.clamp(max=0) * inside) for credit in (td, outcome)]
    return np.array([[(credit * slip).sum().item(), credit.sum().item()] for credit in lost])


def most_varied_group(generation: Generation, num_generations: int) -> slice:
    """The group with the most distinct completions among those with right and wrong answers."""
    starts = range(0, len(generation.prompts), num_generations)
    groups = [slice(start, start + num_generations) for start in starts]

    def variety(group: slice) -> tuple[bool, int]:
        return len(set(generation.rewards[group].tolist())) > 1, len(set(generation.completions[group]))

    return max(groups, key=variety)
