"""One rank of a distributed run: `torchrun --nproc_per_node 2 -m tests.trainers.rank MODEL FOLDER [key=value ...]`.

Writes the rank's recorded batches to FOLDER/rank{r}.pt. Started by test_ranks.py.
"""

import ast
import sys

import torch

from tempo_trl.launch.train import end

from .recording import RecordingTrainer, config, picky, questions, share_of_threes


def main(model: str, folder: str, *options: str) -> None:
    overrides = {key: ast.literal_eval(value) for key, value in (option.split("=", 1) for option in options)}
    trainer = RecordingTrainer(
        model, [share_of_threes, picky], config(folder, **overrides), questions(), eval_dataset=questions(3)
    )
    trainer.train()
    state = {
        "batches": [tuple(batch) for batch in trainer.batches],
        "table": list(trainer._logs["advantages"]),
        "history": trainer.state.log_history,
    }
    torch.save(state, f"{folder}/rank{trainer.accelerator.process_index}.pt")
    end(trainer)


if __name__ == "__main__":
    main(*sys.argv[1:])
