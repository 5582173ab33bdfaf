"""TEMPO under FSDP2 on one device, with the shipped configuration.

On a CPU, where accelerate does not shard, the same run without it.
"""

from pathlib import Path

import torch

from benchmarks.gpu.launched import launched
from benchmarks.gpu.section import QWEN3_0_6B, Row, demo_run, main, saved_policy

CONFIG = Path(__file__).parents[2] / "recipes" / "accelerate" / "fsdp2.yaml"


def rows(device: torch.device, tiny: bool) -> list[Row]:
    with saved_policy(QWEN3_0_6B, tiny) as (model, folder):
        accelerate = ["-m", "accelerate.commands.launch"]
        if device.type == "cpu":
            flags = demo_run(model, folder / "run", tiny, "--use_cpu", "true")
            return [launched("the same run without FSDP2", [*accelerate, "--cpu"], flags, folder / "run")]
        flags = demo_run(model, folder / "run", tiny)
        launcher = [*accelerate, "--config_file", str(CONFIG), "--num_processes", "1"]
        return [launched("FSDP2, bf16, one process", launcher, flags, folder / "run")]


if __name__ == "__main__":
    main(rows)
