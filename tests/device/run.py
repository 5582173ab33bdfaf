"""Every method on a pretend GPU: one rank, MODEL FOLDER.

Trains each case there, and on the CPU, and writes what happened to FOLDER/rank{r}.pt.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from tempo_trl.trainers.token_credit import TokenCreditTrainer

from ..trainers import every_method
from ..trainers.every_method import TREES
from ..trainers.recording import questions, share_of_threes, weights
from .cases import CASES, LARGER, OF_RANKS, TWICE
from .pretend_gpu import DEVICE, OnGPU, PretendGPU, nccl


def _advantages_on_the_cpu(self, output, *rest, use=TokenCreditTrainer._use):
    use(self, output, *rest)
    output["advantages"] = output["advantages"].cpu()


def _a_wait_a_row(self, batch, rows, own_credit=TokenCreditTrainer._own_credit):
    for row in rows.output["completion_ids"]:
        row[0].item()
    return own_credit(self, batch, rows)


WAITS_BY_CHANCE = ("transformers_sampler",)
MISTAKES = {
    "advantages left on the CPU": (TokenCreditTrainer, "_use", _advantages_on_the_cpu, "tempo", {}),
    "a wait a row": (TokenCreditTrainer, "_own_credit", _a_wait_a_row, "tempo", {}),
    "a wait a row, twice": (TokenCreditTrainer, "_own_credit", _a_wait_a_row, "tempo", TWICE),
}


@contextlib.contextmanager
def device(gpu: PretendGPU | None):
    """`use_cpu`, the configuration of all tests, gives way to the pretend GPU."""
    AcceleratorState._shared_state.clear()
    if gpu is None:
        PartialState._shared_state["device"] = torch.device("cpu")
        yield
        return
    real = every_method.config

    def config(*args, **options):
        built = real(*args, **options)
        PartialState._shared_state["device"] = built.__dict__["_setup_devices"] = DEVICE
        AcceleratorState._shared_state.clear()
        return built

    with gpu, nccl(), mock.patch.object(every_method, "config", config):
        yield


def train(method: str, model: str, folder: Path, gpu: PretendGPU | None, **options) -> dict:
    """A run of two steps, of one on two ranks: its weights."""
    defaults = {
        "max_steps": 1 if dist.is_initialized() else 2,
        "log_completions": True,
        "num_completions_to_print": 0,
        "num_generations": 4,
        "max_completion_length": 8,
        "per_device_train_batch_size": 8,
        "optim": "sgd",  # rounding stays rounding
        "learning_rate": 0.1,
    }
    if dist.is_initialized() and method not in TREES:
        defaults["per_device_train_batch_size"] = 2  # a group lies across both ranks
    with device(gpu):
        trainer = every_method.trainer_of(method, model, folder, reward=share_of_threes, **(defaults | options))
        assert trainer.accelerator.device.type == (DEVICE.type if gpu else "cpu"), trainer.accelerator.device
        torch.manual_seed(1)  # what a critic's new head draws depends on the device
        trainer.train()
        if options.get("num_generations_eval"):
            trainer.evaluate(questions())
        assert all(isinstance(p, OnGPU) == bool(gpu) for p in trainer.model.parameters())
        if hasattr(trainer, "critic"):  # other kernels hold a copy of all its parameters during a step
            assert bool(trainer.critic.optimizer.defaults["fused"]) == bool(gpu)
        return {name: value.detach().cpu() for name, value in weights(trainer).items()}


def ours(counted: Counter) -> dict[tuple[str, str], int]:
    """
    Counts of tempo_trl's own lines. Without its sampler, whose `generate` waits once a token as TRL's, and the check
    of what a subclass such as the tests' own returns, which waits once in a batch whose rows happen to be as many as
    its tokens.
    """
    return {
        (kind, place): count
        for (kind, place), count in counted.items()
        if place.startswith("tempo_trl/") and not any(name in place for name in WAITS_BY_CHANCE)
    }


def observed(name: str, method: str, model: str, folder: Path, options: dict) -> dict:
    """What a case does on the pretend GPU, and how far from it the CPU arrives, but for runs that compare waits."""
    gpu = PretendGPU()
    try:
        there = train(method, model, folder / f"{name} gpu", gpu, **options)
    except RuntimeError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    seen = {"waits": ours(gpu.waits)}
    if name in CASES:
        here = train(method, model, folder / f"{name} cpu", None, **options)
        seen["apart"] = max((there[key] - here[key]).abs().max().item() for key in here)
    return seen


def unsynchronised(self, model, **options):
    """DDP's reducer wants the memory of gradients. Ranks then train apart, and all other collectives are as ever."""
    return model.to(self.device)


def main(model: str, folder: str) -> None:
    folder, seen = Path(folder), {}
    alone = "RANK" not in os.environ
    PartialState(cpu=True)  # the group of ranks, before anything pretends
    with contextlib.ExitStack() as stack:
        if not alone:
            stack.enter_context(mock.patch.object(Accelerator, "prepare_model", unsynchronised))
        for name, (method, options) in (CASES | LARGER if alone else OF_RANKS).items():
            seen[name] = observed(name, method, model, folder, options)
        for name, (owner, attribute, mistake, method, options) in (MISTAKES if alone else {}).items():
            with mock.patch.object(owner, attribute, mistake):
                seen[name] = observed(name, method, model, folder, options)
    torch.save(seen, folder / f"rank{os.environ.get('RANK', '0')}.pt")
