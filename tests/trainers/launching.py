"""Ranks on gloo: forked, or started by a real launcher and ended with everything that it started."""

import itertools
import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

from ..quick_python import REPOSITORY, quick_python

HANG = 900  # seconds, half of what gloo waits; runs take a few, and a minute on a busy machine
ONE_RANK = "tests.trainers.one_rank"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
ACCELERATE = ("-m", "accelerate.commands.launch")


# Below those that the kernel hands out, and other ones for each worker: nobody takes one before it is bound.
PORTS = itertools.count(20_000 + 1_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port


def torchrun(ranks: int) -> list[str]:
    return [*TORCHRUN, str(ranks)] if ranks > 1 else []


def accelerate_launch(ranks: int, port: int) -> list[str]:
    # `--multi_gpu` stands for several processes on the CPU too; `--cpu` starts a single one.
    options = ["--mixed_precision", "no", "--num_processes", str(ranks), "--main_process_port", str(port)]
    return [*ACCELERATE, "--multi_gpu", "--num_machines", "1", *options]


def run_ranks(launcher: list[str], ranks: int, module: str, model: str, folder: Path, *options: str) -> list[dict]:
    """Run `module` on forked ranks with the environment that `launcher` would set; load what each rank wrote."""
    status, printed = fork_to_the_end(launcher, ranks, module, model, folder, *options)
    assert status == 0, printed[-5000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


def fork_to_the_end(
    launcher: list[str], ranks: int, module: str, model: str, folder: Path, *options: str
) -> tuple[int, str]:
    """Exit status and output of `module` on forked ranks."""
    printed, words = folder / "printed", [quick_python(), "-m", ONE_RANK, module, model, str(folder), *options]
    with printed.open("ab") as out:
        started = [
            subprocess.Popen(words, cwd=REPOSITORY, env=os.environ | own, stdout=out, stderr=out)
            for own in environments(launcher, ranks)
        ]
    try:
        return first_failure(started, printed), printed.read_text()
    finally:
        for rank in started:
            rank.kill()


def first_failure(ranks: list[subprocess.Popen], printed: Path) -> int:
    """The first exit status that is not 0, at which the other ranks are ended, as launchers do; or 0."""
    deadline = time.monotonic() + HANG
    while not (status := next((rank.returncode for rank in ranks if rank.poll()), 0)):
        if all(rank.returncode == 0 for rank in ranks):
            return 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"ranks hang: {printed.read_text()[-5000:]}")
        time.sleep(0.02)
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait(HANG)
    return status


def environments(launcher: list[str], ranks: int) -> list[dict[str, str]]:
    """Environment variables of each rank: its place, and accelerate's engine."""
    engine = engine_of(launcher[len(ACCELERATE) :]) if "accelerate.commands.launch" in launcher else {}
    if ranks == 1:
        return [engine]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(ranks))
    return [engine | meeting | sizes | dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)) for rank in range(ranks)]


def engine_of(options: list[str]) -> dict[str, str]:
    """What `accelerate launch` adds to the environment of its ranks."""
    args, *_ = _validate_launch_command(launch_command_parser().parse_args([*options, "script"]))
    args.deepspeed_fields_from_accelerate_config = ""  # there is no such file
    changed = prepare_deepspeed_cmd_env(args)[1] if args.use_deepspeed else prepare_multi_gpu_env(args)
    return {name: value for name, value in changed.items() if os.environ.get(name) != value}


def run_to_its_end(launcher: list[str], module: str, model: str, folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and output of `module` under `launcher`, offline as the tests are (see conftest)."""
    process = subprocess.Popen(
        [quick_python(), *launcher, "-m", ONE_RANK, module, model, str(folder), *options],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=HANG)
    finally:
        process.terminate()  # unlike a kill, it lets the launcher take its ranks along
    return process.returncode, printed
