"""What the world does to a run: a process killed, a disk that refuses, a reward function that fails."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from transformers import TrainerCallback

from ..processes import is_living, wait_until
from ..quick_python import REPOSITORY, quick_python
from .faulty import STEPS
from .launching import HANG, ONE_RANK, accelerate_launch, free_port, run_ranks, run_to_its_end, torchrun
from .recording import assert_same, questions, train

MODULE = "tests.trainers.faulty"


@contextlib.contextmanager
def launched(launcher: list[str], model: str, folder: Path, fault: str):
    """A run of faulty.py that is to be killed; nothing of it is left behind."""
    with (folder / "printed").open("w") as printed:
        process = subprocess.Popen(
            [quick_python(), *launcher, "-m", ONE_RANK, MODULE, model, str(folder), fault],
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        for rank in living_ranks(folder):
            kill(rank)
        process.wait(HANG)


def living_ranks(folder: Path) -> list[int]:
    pids = [int(file.read_text()) for file in folder.glob("rank*.pid")]
    return [*filter(is_living, pids)]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # a rank leads a process group of its own, under torchrun too


def has_reached(file: Path, step: int) -> bool:
    return file.exists() and int(file.read_text() or 0) >= step


@pytest.fixture(scope="module")
def uninterrupted(tiny_model, tmp_path_factory):
    """Weights of each rank of a run that nobody killed, for a number of ranks."""
    done = {}

    def weights_of(ranks: int) -> list[dict]:
        if ranks not in done:
            folder = tmp_path_factory.mktemp("uninterrupted")
            done[ranks] = run_ranks(torchrun(ranks), ranks, MODULE, tiny_model, folder, "nothing")
        return done[ranks]

    return weights_of


def assert_resumes_to_the_same_weights(model: str, folder: Path, expected: list[dict], checkpoint: int):
    resumed = run_ranks(torchrun(len(expected)), len(expected), MODULE, model, folder, "nothing")
    for ours, whole in zip(resumed, expected, strict=True):
        assert whole["resumed"] is None
        assert Path(ours["resumed"]).name == f"checkpoint-{checkpoint}"
        assert_same(ours["weights"], whole["weights"])


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_killed_at_a_random_step_resumes_to_the_weights_of_the_run_that_never_stopped(
    ranks, tiny_model, tmp_path, uninterrupted
):
    """With two ranks one of them is killed, whichever, and the launcher ends the other."""
    rng = random.Random(ranks)
    step, victim = rng.randrange(3, STEPS), rng.randrange(ranks)
    with launched(torchrun(ranks), tiny_model, tmp_path, "killed") as process:
        wait_until(lambda: has_reached(tmp_path / f"rank{victim}.step", step))
        time.sleep(rng.uniform(0, 0.1))  # somewhere in this step, or in the next
        kill(int((tmp_path / f"rank{victim}.pid").read_text()))
        assert process.wait(HANG) != 0
        assert living_ranks(tmp_path) == []
    whole = [int(p.parent.name.split("-")[1]) for p in tmp_path.glob("checkpoint-*/trainer_state.json")]
    assert_resumes_to_the_same_weights(tiny_model, tmp_path, uninterrupted(ranks), max(whole))


@pytest.mark.matrix
def test_a_run_of_which_one_rank_is_killed_while_it_saves_resumes_from_the_checkpoint_before(
    tiny_model, tmp_path, uninterrupted
):
    """The other rank waits for it, and does not call a checkpoint whole that lacks the generator of a rank."""
    with launched(torchrun(2), tiny_model, tmp_path, "killed_while_saving") as process:
        wait_until((tmp_path / "saving").exists)
        wait_until((tmp_path / "checkpoint-4" / "model.safetensors").exists)
        time.sleep(1)  # for the other rank to go on, if it did
        kill(int((tmp_path / "rank1.pid").read_text()))
        assert process.wait(HANG) != 0
    assert_resumes_to_the_same_weights(tiny_model, tmp_path, uninterrupted(2), checkpoint=2)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("launcher", "fault", "error"),
    [
        (lambda: torchrun(2), "reward_that_raises", "this grader is out of order"),
        # PPO's credit reduces over ranks: the rank that fails must not go on to the collectives that come after it.
        (lambda: accelerate_launch(2, free_port()), "critic_that_raises", "this critic is out of order"),
    ],
    ids=["reward function", "critic"],
)
def test_an_error_on_one_rank_ends_the_other_long_before_ddp_timeout(launcher, fault, error, tiny_model, tmp_path):
    """The other rank's collective fails with the connection, or the launcher ends that rank: whichever is first.

    Long before: `run_to_its_end` waits for half of the 30 minutes that gloo waits.
    """
    status, printed = run_to_its_end(launcher(), MODULE, tiny_model, tmp_path, fault)
    assert status != 0
    assert len(list(tmp_path.glob("rank*.pid"))) == 2
    assert living_ranks(tmp_path) == []
    assert f"[rank1]: ArithmeticError: {error}" in printed


COMPLETIONS = {
    "log_completions": True,
    "num_completions_to_print": 1,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "per_device_eval_batch_size": 4,
}


def without_times(history: list[dict]) -> list[dict]:
    clocks = ("runtime", "per_second", "step_time")
    return [{key: value for key, value in entry.items() if not key.endswith(clocks)} for entry in history]


class LosesTheFolder(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            shutil.rmtree(Path(args.output_dir) / "completions")


@pytest.mark.parametrize("fault", ["the disk is full", "the folder is gone"])
def test_a_disk_that_refuses_the_completions_costs_their_tables_and_one_warning(
    fault, tiny_model, tmp_path, said_once
):
    if fault == "the disk is full" and not Path("/dev/full").exists():
        pytest.skip("not run here: no /dev/full")
    healthy = train(tiny_model, tmp_path / "healthy", trainer={"eval_dataset": questions(2)}, **COMPLETIONS)
    keywords = {"eval_dataset": questions(2)}
    if fault == "the disk is full":
        (tmp_path / "refused" / "completions").mkdir(parents=True)
        for step in (1, 2, 3):
            (tmp_path / "refused" / "completions" / f"completions_{step:05d}.parquet").symlink_to("/dev/full")
    else:
        keywords["callbacks"] = [LosesTheFolder()]
    refused = train(tiny_model, tmp_path / "refused", trainer=keywords, **COMPLETIONS)

    told = said_once("Could not write")
    assert len(told) == 1
    assert str(tmp_path / "refused" / "completions") in told[0]
    assert ("No space left on device" if fault == "the disk is full" else "non-existent directory") in told[0]
    for file in (tmp_path / "refused").glob("completions/*"):
        pd.read_parquet(file)  # a torn one would make the whole folder unreadable
    assert refused.state.global_step == 3
    assert without_times(refused.state.log_history) == without_times(healthy.state.log_history)
