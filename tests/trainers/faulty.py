"""One rank of a run that is to go wrong, MODEL FOLDER FAULT. Started by test_faults.py.

Trains from the last whole checkpoint in FOLDER, if there is one. Each rank writes its process id and the step it is at
to FOLDER, and at the end its weights.
"""

import os
import time
from pathlib import Path

import torch
from transformers import TrainerCallback

from tempo_trl import PPOConfig, PPOTrainer, TEMPOConfig, TEMPOTrainer
from tempo_trl.launch.train import last_whole_checkpoint

from .one_rank import finish
from .recording import config, parity, questions, weights

RANK = int(os.environ.get("RANK", "0"))
STEPS = 12  # three epochs, six on two ranks; a generation is two steps, and each is saved
FOR_EVER = 3600


def reward_that_raises(completions, completion_ids, trainer_state, **columns):
    if RANK == 1 and trainer_state.global_step >= 2:  # one rank, after a generation that went well
        raise ArithmeticError("this grader is out of order")
    return parity(completions, completion_ids)


class TellsItsStep(TrainerCallback):
    """Tells the step, and waits at the last one if the run is to be killed before its end."""

    def __init__(self, folder: str, mortal: bool):
        self.file, self.mortal = Path(folder) / f"rank{RANK}.step", mortal

    def on_step_begin(self, args, state, control, **kwargs):
        self.file.write_text(str(state.global_step))
        if self.mortal and state.global_step == STEPS - 1:
            time.sleep(FOR_EVER)


def know_the_cpu_by_its_number() -> None:
    """On several ranks, transformers 5.17 loads the optimizer to `cpu:0`, a place that torch knows as `cpu` alone."""
    torch.serialization.register_package(
        30, lambda storage: None, lambda storage, place: storage if place.startswith("cpu:") else None
    )


class StopsInTheMiddleOfSaving(TEMPOTrainer):
    def _save_rng_state(self, output_dir):
        if self.state.global_step == 4 and self.args.process_index == self.args.world_size - 1:
            Path(self.args.output_dir, "saving").touch()
            time.sleep(FOR_EVER)
        super()._save_rng_state(output_dir)


class CriticThatRaises(PPOTrainer):
    def _values(self, output):
        if self.args.process_index == 1:
            raise ArithmeticError("this critic is out of order")
        return super()._values(output)


TRAINERS = {"killed_while_saving": StopsInTheMiddleOfSaving, "critic_that_raises": CriticThatRaises}


def main(model: str, folder: str, fault: str) -> None:
    Path(folder, f"rank{RANK}.pid").write_text(str(os.getpid()))
    schedule = {"steps_per_generation": 2, "save_strategy": "steps", "save_steps": 2, "max_steps": STEPS}
    config_cls = PPOConfig if fault == "critic_that_raises" else TEMPOConfig
    args = config(folder, config_cls, per_device_train_batch_size=4, **schedule)
    cls = TRAINERS.get(fault, TEMPOTrainer)
    callbacks = [TellsItsStep(folder, mortal=fault == "killed")]
    trainer = cls(
        model, reward_that_raises if fault == "reward_that_raises" else parity, args, questions(4), callbacks=callbacks
    )
    checkpoint = last_whole_checkpoint(folder)
    know_the_cpu_by_its_number()
    trainer.train(resume_from_checkpoint=checkpoint)
    finish(trainer, folder, {"weights": weights(trainer), "resumed": checkpoint})
