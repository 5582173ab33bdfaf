"""Two ranks under DDP or DeepSpeed: the launcher of each engine."""

import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from .launching import accelerate_launch, free_port, run_ranks

# A tiny model's parameters are all below the default threshold, under which ZeRO-3 shards nothing.
SHARDED = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_gather_16bit_weights_on_model_save": True}
ZERO = {
    "zero2": {"stage": 2},
    "zero3": SHARDED,
    "zero3_offload": SHARDED | {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}},
}


NEEDS_DEEPSPEED = pytest.mark.skipif(find_spec("deepspeed") is None, reason="not run here: DeepSpeed")


def runs_of(module: str, model: str, mktemp: Callable[[str], Path]) -> Callable[..., tuple[Path, list[dict]]]:
    """A function that runs two ranks, once for each engine and options: (the run's folder, what each rank wrote)."""

    @cache
    def run(engine: str, *options: str) -> tuple[Path, list[dict]]:
        folder = mktemp(engine)
        return folder, run_ranks(launcher_of(engine, folder), 2, module, model, folder, *options)

    return run


def launcher_of(engine: str, folder: Path) -> list[str]:
    """`accelerate launch` of two ranks with `ddp` or one of `ZERO`, whose settings it writes to `folder`."""
    launcher = accelerate_launch(2, free_port())
    if engine == "ddp":
        return launcher
    auto = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    settings = {"zero_optimization": ZERO[engine], "zero_allow_untested_optimizer": True}
    settings |= {"zero_force_ds_cpu_optimizer": False} | dict.fromkeys(auto, "auto")
    (folder / "deepspeed.json").write_text(json.dumps(settings))
    launcher.remove("--multi_gpu")
    deepspeed = ["--use_deepspeed", "--deepspeed_config_file", str(folder / "deepspeed.json")]
    return [*launcher, *deepspeed, "--zero3_init_flag", "true"]
