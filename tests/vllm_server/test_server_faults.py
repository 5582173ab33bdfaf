"""A vLLM server that is not there, or dies while it gets weights: the run ends with a clear error."""

from pathlib import Path

import pytest

from ..trainers.launching import fork_to_the_end, free_port, torchrun

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")

MODULE = "tests.vllm_server.rank"
SAVING = ("save_strategy='steps'", "save_steps=1")


def batch_of(ranks: int) -> str:
    return f"per_device_train_batch_size={24 // ranks}"


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_a_server_the_run_ends_within_its_time_out_and_says_what_to_start(ranks, served_model, tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    options = url, "full", batch_of(ranks), "vllm_server_timeout=5.0"
    status, printed = fork_to_the_end(torchrun(ranks), ranks, MODULE, served_model, tmp_path, *options)
    assert status != 0
    assert f"No vLLM server is ready at {url}" in printed
    assert "vllm_server_timeout=5 seconds" in printed
    assert "nothing was lost" in printed
    assert f"VLLM_SERVER_DEV_MODE=1 vllm serve {served_model}" in printed


def check_advice(status: int, printed: str, url: str, last_checkpoint: Path) -> None:
    assert status != 0
    assert f"The vLLM server at {url} stopped answering at step 2" in printed
    assert f"The last checkpoint is {last_checkpoint}." in printed
    assert "--resume_from_checkpoint last" in printed


def test_a_server_that_dies_while_weights_are_sent_by_a_transport_that_blocks_ends_the_run(served_model, tmp_path):
    from .server import running

    with running(served_model, tmp_path) as dying:
        arguments = MODULE, served_model, tmp_path, dying.url, "full", batch_of(2), *SAVING
        kill = f"kill_server_within_update=({dying.process.pid}, 3)"
        group = f"vllm_group_port={free_port()}"
        status, printed = fork_to_the_end(torchrun(2), 2, *arguments, group, kill)
    check_advice(status, printed, dying.url, tmp_path / "checkpoint-2")
