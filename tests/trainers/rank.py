"""One rank of a distributed run, MODEL FOLDER [key=value ...]: its recorded batches, table and history."""

from .one_rank import finish, parsed
from .recording import RecordingTrainer, config, picky, questions, share_of_threes


def main(model: str, folder: str, *options: str) -> None:
    args, rewards = config(folder, **parsed(options)), [share_of_threes, picky]
    trainer = RecordingTrainer(model, rewards, args, questions(), eval_dataset=questions(3))
    trainer.train()
    state = {
        "batches": [tuple(batch) for batch in trainer.batches],
        "table": list(trainer._logs["advantages"]),
        "history": trainer.state.log_history,
    }
    finish(trainer, folder, state)
