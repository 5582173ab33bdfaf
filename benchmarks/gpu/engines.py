"""TEMPO with the engines that shard a model, on one device with the shipped configurations, and with LoRA.

On a CPU, where accelerate does not shard, the same run without them.
"""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.gpu.launched import launched
from benchmarks.gpu.section import QWEN3_0_6B, Row, demo_run, main, saved_policy

CONFIGS = Path(__file__).parents[2] / "recipes" / "accelerate"
ENGINES = {"fsdp2": "accelerate", "zero2": "deepspeed", "zero3": "deepspeed"}  # and the package that each takes
LAUNCH = ["-m", "accelerate.commands.launch", "--num_processes", "1"]
SHORT = ["--per_device_train_batch_size", "16", "--max_completion_length", "32"]  # they run beside each other
LORA = ["--use_peft", "true", "--lora_target_modules", "all-linear"]


def with_engine(engine: str, model: str, folder: Path, tiny: bool) -> Row:
    figure, package = f"{engine}, bf16, one process", ENGINES[engine]
    if find_spec(package) is None:
        return figure, f"not run: {package} is not installed here"
    launcher = [*LAUNCH, "--config_file", str(CONFIGS / f"{engine}.yaml"), "--main_process_port", "0"]
    return launched(figure, launcher, demo_run(model, folder / engine, tiny, *SHORT), folder / engine)


def with_lora(model: str, folder: Path, tiny: bool) -> Row:
    return launched("LoRA, bf16", [], demo_run(model, folder / "lora", tiny, *SHORT, *LORA), folder / "lora")


def rows(device: torch.device, tiny: bool) -> list[Row]:
    with saved_policy(QWEN3_0_6B, tiny) as (model, folder):
        if device.type == "cpu":
            flags = demo_run(model, folder / "run", tiny, "--use_cpu", "true")
            return [launched("the same run without an engine", [*LAUNCH, "--cpu"], flags, folder / "run")]
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(with_engine, engine, model, folder, tiny) for engine in ENGINES]
            return [run.result() for run in [*runs, pool.submit(with_lora, model, folder, tiny)]]


if __name__ == "__main__":
    main(rows)
