"""Train a recipe for a number of seconds: `python -m tempo_trl.launch.timed_training SECONDS --config RECIPE ...`.

It is `python -m tempo_trl.train` with a clock, and with the demo's sampler, which is quicker on a CPU. The clock reads
TRL's log, so a resumed run keeps the time it had.
"""

import sys

from transformers import TrainerCallback

from tempo_trl.demo.sampling import sample_quickly_on_a_cpu
from tempo_trl.launch import train
from tempo_trl.launch.arguments import parse


class Clock(TrainerCallback):
    """Ends the training before the step that would exceed `seconds` of training."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def on_log(self, args, state, control, **kwargs):
        times = step_seconds(state.log_history)
        if times and sum(times) + max(times[-3:]) > self.seconds:
            control.should_training_stop = control.should_save = True


def step_seconds(log_history: list[dict]) -> list[float]:
    """Seconds of each optimizer step in TRL's log, evaluation not counted."""
    return [entry["step_time"] for entry in log_history if "step_time" in entry]


def main(argv: list[str]) -> None:
    sample_quickly_on_a_cpu()
    train.run(parse(argv[1:]), argv[1:], callbacks=[Clock(float(argv[0]))])


if __name__ == "__main__":
    main(sys.argv[1:])
