"""What modules of which the `main` is one rank of a run have in common. Tests fork them, see `launching.run_ranks`.

By hand and under a launcher: `torchrun --nproc_per_node 2 -m tests.trainers.one_rank MODULE MODEL FOLDER ...`.
"""

import ast
import importlib
import sys

import torch

from tempo_trl.launch.train import end


def parsed(options: tuple[str, ...]) -> dict:
    """Options of the command line, `key=value` with a literal."""
    return {key: ast.literal_eval(value) for key, value in (option.split("=", 1) for option in options)}


def finish(trainer, folder: str, seen: dict) -> None:
    """Write what this rank has seen to FOLDER/rank{r}.pt, where `run_ranks` reads it, and end the rank."""
    torch.save(seen, f"{folder}/rank{trainer.accelerator.process_index}.pt")
    end(trainer)


if __name__ == "__main__":
    importlib.import_module(sys.argv[1]).main(*sys.argv[2:])
