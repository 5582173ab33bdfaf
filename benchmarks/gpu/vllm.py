"""TEMPO with completions from vLLM: in the trainer's process with sleep mode, and from a server on a second GPU.

NCCL takes one rank per device, so a server needs a device of its own: name two in CUDA_VISIBLE_DEVICES_OF_VLLM.
"""

import os
import shlex
import subprocess
from pathlib import Path

import torch
from trl.import_utils import is_vllm_available

from benchmarks.gpu.launched import launched
from benchmarks.gpu.section import QWEN3_0_6B, Row, demo_run, main, saved_policy
from tempo_trl.rollout.vllm_server import server_command

DEVICES = "CUDA_VISIBLE_DEVICES_OF_VLLM"  # "0,1": the trainer's and the server's
COLOCATED, SERVER = "colocated, sleep mode", "server mode, weights over NCCL"


def colocated(model: str, folder: Path, tiny: bool) -> Row:
    share = ["--vllm_gpu_memory_utilization", "0.3", "--vllm_enable_sleep_mode", "true"]
    flags = demo_run(model, folder, tiny, "--use_vllm", "true", "--vllm_mode", "colocate", *share)
    return launched(COLOCATED, [], flags, folder)


def from_server(model: str, folder: Path, tiny: bool) -> Row:
    if "," not in os.environ.get(DEVICES, ""):
        return SERVER, f"not run: NCCL takes one rank per device; set {DEVICES}=0,1 where there are two"
    trainer, server = os.environ[DEVICES].split(",")
    command = shlex.split(server_command(model).split(" ", 1)[1])
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "CUDA_VISIBLE_DEVICES": server}
    with subprocess.Popen(command, env=environment) as process:
        try:
            flags = demo_run(model, folder, tiny, "--use_vllm", "true", "--vllm_mode", "server")
            return launched(SERVER, [], flags, folder, CUDA_VISIBLE_DEVICES=trainer)
        finally:
            process.terminate()


def rows(device: torch.device, tiny: bool) -> list[Row]:
    if device.type == "cpu" or not is_vllm_available():
        return [(figure, "not run: it takes a GPU and vLLM") for figure in (COLOCATED, SERVER)]
    with saved_policy(QWEN3_0_6B, tiny) as (model, folder):
        return [colocated(model, folder / "colocated", tiny), from_server(model, folder / "server", tiny)]


if __name__ == "__main__":
    main(rows)
