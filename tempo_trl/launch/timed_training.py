"""Train a recipe for a number of seconds: `python -m tempo_trl.launch.timed_training SECONDS --config RECIPE ...`.

It is `python -m tempo_trl.train` with a clock, and with the demo's sampler, which is quicker on a CPU. The clock reads
TRL's log, so a resumed run keeps the time it had.
"""

import json
import sys
from pathlib import Path

from transformers import TrainerCallback

from tempo_trl.demo.run import PROGRESS
from tempo_trl.demo.sampling import sample_quickly_on_a_cpu
from tempo_trl.launch import train
from tempo_trl.runs.files import write_atomically

TABLES = "completions/completions_*.parquet", "tempo/*trees_*.parquet"


class Clock(TrainerCallback):
    """
    Ends the training before the log that would exceed `seconds` of training, and writes down for the demo what the run
    does: before, in or after training, for how many seconds, and the reward of each step.
    """

    def __init__(self, seconds: float):
        self.seconds, self.phase = seconds, "before"

    def on_train_begin(self, args, state, control, **kwargs):
        # An attempt that was stopped after its last checkpoint has left tables of steps that this one may not reach.
        if state.is_world_process_zero:
            for file in [file for tables in TABLES for file in Path(args.output_dir).glob(tables)]:
                if int(file.stem.rpartition("_")[2]) > state.global_step:
                    file.unlink()

    def on_step_begin(self, args, state, control, **kwargs):
        if self.phase == "before":
            self._write("training", args, state)

    def on_log(self, args, state, control, **kwargs):
        times = step_seconds(state.log_history)
        if times and sum(times) + state.logging_steps * max(times[-3:]) > self.seconds:
            control.should_training_stop = control.should_save = True
        self._write(self.phase, args, state)

    def on_train_end(self, args, state, control, **kwargs):
        self._write("after", args, state)

    def _write(self, phase: str, args, state) -> None:
        self.phase = phase
        if state.is_world_process_zero:
            rewards = [entry["reward"] for entry in state.log_history if "reward" in entry]
            progress = phase, sum(step_seconds(state.log_history)), rewards
            write_atomically(Path(args.output_dir) / PROGRESS, json.dumps(progress))


def step_seconds(log_history: list[dict]) -> list[float]:
    """Seconds of each optimizer step, from TRL's log of means since the entry before. Evaluation is not counted."""
    seconds, entries = [], [entry for entry in log_history if "step_time" in entry]
    for entry in entries:
        seconds += [entry["step_time"]] * (entry["step"] - len(seconds))
    return seconds


def main(argv: list[str]) -> int:
    sample_quickly_on_a_cpu()
    return train.main(argv[1:], [Clock(float(argv[0]))])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
