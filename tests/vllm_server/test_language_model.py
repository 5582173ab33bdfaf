"""The demo's language model, cut short, over a vLLM server: tied embeddings, and a chat template."""

import pytest

from ..smollm2 import first_layers
from ..trainers.engines import launcher_of
from ..trainers.launching import free_port, run_ranks, torchrun
from ..trainers.recording import Batch
from .stale import apart_from_first_weights

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")

# Eight completions of one prompt, which lie on both of two ranks. At this rate the first update moves probabilities.
SMALL = ("num_generations=8", "max_completion_length=10", "max_steps=2", "conversational=True")


@pytest.fixture(scope="module")
def served_model(tmp_path_factory) -> str:
    return first_layers(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(served_model, tmp_path_factory):
    from .server import running

    with running(served_model, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def one_rank(server, served_model, tmp_path_factory) -> list[dict]:
    return trained(torchrun(1), 1, served_model, tmp_path_factory.mktemp("one"), server.url)


@pytest.fixture(scope="module")
def zero2(server, served_model, tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("zero2")
    return trained(launcher_of("zero2", folder), 2, served_model, folder, server.url)


def trained(launcher: list[str], ranks: int, model: str, folder, url: str) -> list[dict]:
    """What each rank saw of two steps in float32, whose weights are sent in float32 too."""
    options = *SMALL, f"per_device_train_batch_size={8 // ranks}", f"vllm_group_port={free_port()}"
    written = run_ranks(launcher, ranks, "tests.vllm_server.rank", model, folder, url, "full", *options)
    (folder / "model.safetensors").unlink()  # pytest would keep half a GB
    return written


@pytest.fixture(params=["one_rank", "zero2"], ids=["1 rank", "2 ranks, ZeRO-2"])
def ranks(request) -> list[dict]:
    return request.getfixturevalue(request.param)


def test_at_every_step_the_server_samples_from_the_weights_of_that_step(ranks):
    for rank in ranks:
        assert len(rank["batches"]) == 2
        for batch, own in zip(rank["batches"], rank["own_logps"], strict=True):
            output = Batch(*batch).output
            assert ((own - output["sampling_per_token_logps"]) * output["completion_mask"]).abs().max() < 1e-3


def test_weights_that_stayed_behind_would_be_seen(ranks, served_model):
    for rank in ranks:
        assert apart_from_first_weights(served_model, Batch(*rank["batches"][1]).output).max() > 0.1


def test_two_ranks_under_zero2_take_the_first_step_of_one(one_rank, zero2):
    first, *split = (Batch(*rank["batches"][0]) for rank in [*one_rank, *zero2])
    assert first.completion_ids == [ids for batch in split for ids in batch.completion_ids]
    assert zero2[0]["history"][0]["grad_norm"] == pytest.approx(one_rank[0]["history"][0]["grad_norm"], rel=1e-3)
    assert "DEEPSPEED" in zero2[0]["engine"]
