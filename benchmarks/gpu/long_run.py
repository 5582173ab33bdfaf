"""Minutes of TEMPO on the shape of Qwen3-1.7B from random weights: does it last?"""

import os
from statistics import median

import torch

from benchmarks.gpu.section import QWEN3_1_7B, Meter, Row, demo_run, gigabytes, main, saved_policy
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.train import build_trainer

MINUTES = float(os.environ.get("MINUTES_OF_LONG_RUN", 20))


class Clock(Meter):
    """Stops a run when its time is over."""

    def __init__(self, device: torch.device, limit: float):
        super().__init__(device)
        self.limit = limit

    def on_step_end(self, args, state, control, **kwargs):
        super().on_step_end(args, state, control)
        control.should_training_stop |= sum(self.seconds) >= self.limit


def rows(device: torch.device, tiny: bool) -> list[Row]:
    on_cpu, clock = device.type == "cpu", Clock(device, 60 * MINUTES)
    with saved_policy(QWEN3_1_7B, tiny) as (model, folder):
        options = ["--use_cpu", str(on_cpu), "--gradient_checkpointing", "true"]
        flags = demo_run(model, folder / "run", tiny, *options)
        flags[flags.index("--max_steps") + 1] = "6" if tiny else "100000"
        build_trainer(parse(flags), [clock]).train()
    third = max(len(clock.seconds) // 3, 1)
    slower = median(clock.seconds[-third:]) / median(clock.seconds[:third])
    peak = "not measured on a CPU" if on_cpu else gigabytes(max(clock.peak))
    return [
        ("steps", f"{len(clock.seconds)} in {sum(clock.seconds) / 60:.1f} minutes"),
        ("a step in the last third over one in the first", f"{slower:.2f}"),
        ("peak memory", peak),
    ]


if __name__ == "__main__":
    main(rows)
