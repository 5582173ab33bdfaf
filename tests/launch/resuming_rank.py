"""One rank that looks for a checkpoint on a disk of its own, _ FOLDER. Saves what it found to FOLDER/rank{r}.pt."""

import os

import torch
import torch.distributed as dist
from trl import GRPOConfig

from tempo_trl.launch.train import checkpoint_to_resume


def main(_: str, folder: str) -> None:
    os.chdir(f"{folder}/disk{os.environ['RANK']}")
    args = GRPOConfig("out", use_cpu=True, bf16=False, report_to="none", resume_from_checkpoint="last")
    try:
        found = checkpoint_to_resume(args)
    except ValueError as error:
        found = str(error)
    torch.save({"found": found}, f"{folder}/rank{args.process_index}.pt")
    dist.destroy_process_group()
