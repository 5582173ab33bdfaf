"""A vLLM server dies in the middle of a run: the run ends, and resumed it arrives at the same weights."""

import pytest
import torch
from safetensors.torch import load_file

from ..trainers.launching import free_port, run_ranks, run_to_its_end, torchrun
from .test_server_faults import MODULE, SAVING, batch_of, check_advice

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")


def test_a_server_that_dies_ends_the_run_and_the_last_checkpoint_resumes_to_the_same_weights(
    server, served_model, tmp_path
):
    from .server import running

    ranks = 2  # one rank goes the same way, and need not agree with another

    def arguments(name: str, url: str) -> tuple:
        (tmp_path / name).mkdir(exist_ok=True)
        return MODULE, served_model, tmp_path / name, url, "full", batch_of(ranks), *SAVING

    with running(served_model, tmp_path) as dying:
        kill = f"kill_server=({dying.process.pid}, 2)"
        group = f"vllm_group_port={free_port()}"
        status, printed = run_to_its_end(torchrun(ranks), *arguments("cut", dying.url), group, kill)
    last = tmp_path / "cut" / "checkpoint-2"
    check_advice(status, printed, dying.url, last)

    for name, more in (("cut", [f"resume_from_checkpoint={str(last)!r}"]), ("whole", [])):
        module, *rest = arguments(name, server.url)
        run_ranks(torchrun(ranks), ranks, module, *rest, f"vllm_group_port={free_port()}", *more)
    resumed, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("cut", "whole"))
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=1e-5, atol=1e-7)
