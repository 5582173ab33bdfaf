"""Real processes on gloo, bounded in time, and ended with everything that they started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

REPOSITORY = Path(__file__).parents[2]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
ACCELERATE = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def torchrun(ranks: int) -> list[str]:
    return [*TORCHRUN, str(ranks)] if ranks > 1 else [sys.executable]


def accelerate_launch(ranks: int, port: int) -> list[str]:
    # `--multi_gpu` stands for several processes on the CPU too; `--cpu` starts a single one.
    options = ["--mixed_precision", "no", "--num_processes", str(ranks), "--main_process_port", str(port)]
    return [*ACCELERATE, *options]


def run_ranks(launcher: list[str], ranks: int, module: str, model: str, folder: Path, *options: str) -> list[dict]:
    """Run `module` under `launcher`, and load what each rank wrote."""
    status, printed = run_to_its_end(launcher, module, model, folder, *options)
    assert status == 0, printed[-5000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


def run_to_its_end(launcher: list[str], module: str, model: str, folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and output of `module` under `launcher`, offline as the tests are (see conftest)."""
    process = subprocess.Popen(
        [*launcher, "-m", module, model, str(folder), *options],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=240)
    finally:
        process.terminate()  # unlike a kill, it lets the launcher take its ranks along
    return process.returncode, printed
