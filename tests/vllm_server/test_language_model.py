"""The demo's language model over a vLLM server: tied embeddings and a chat template, which the tiny model lacks."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tempo_trl.demo.language_model import language_model

from ..trainers.engines import launcher_of
from ..trainers.launching import free_port, run_ranks, torchrun
from ..trainers.recording import Batch
from ..trainers.test_ranks import assert_credit_is_that_of_all_ranks_together

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")

# Eight completions of one prompt, which lie on both of two ranks. At this rate the first update moves probabilities.
SMALL = ("num_generations=8", "max_completion_length=10", "max_steps=2", "conversational=True")


@pytest.fixture(scope="module")
def served_model() -> str:
    try:
        return language_model().path
    except FileNotFoundError as error:
        pytest.skip(str(error))


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


def difference(rank: dict, step: int, logps: torch.Tensor) -> float:
    """Largest distance of log-probabilities of a step's completions from those that they were sampled with."""
    output = Batch(*rank["batches"][step]).output
    return float(((logps - output["sampling_per_token_logps"]) * output["completion_mask"]).abs().max())


def test_at_every_step_the_server_samples_from_the_weights_of_that_step(ranks):
    for rank in ranks:
        assert len(rank["batches"]) == 2
        for step, own in enumerate(rank["own_logps"]):
            assert difference(rank, step, own) < 1e-3


def test_weights_that_stayed_behind_would_be_seen(ranks, served_model):
    first = AutoModelForCausalLM.from_pretrained(served_model, dtype=torch.float32)
    for rank in ranks:
        output = Batch(*rank["batches"][1]).output
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            logits = first(ids, attention_mask=mask).logits[:, -output["completion_ids"].shape[1] - 1 : -1]
        stale = logits.log_softmax(-1).gather(-1, output["completion_ids"].unsqueeze(-1)).squeeze(-1)
        assert difference(rank, 1, stale) > 0.1


def test_trl_s_correction_is_on_and_its_ratios_are_1(ranks):
    for entry in ranks[0]["history"][:2]:
        ratios = [entry[f"sampling/importance_sampling_ratio/{name}"] for name in ("min", "mean", "max")]
        assert ratios == pytest.approx([1, 1, 1], abs=1e-2)


def test_credit_is_that_of_the_ids_that_the_server_sent(ranks):
    for batches in zip(*(rank["batches"] for rank in ranks), strict=True):
        assert_credit_is_that_of_all_ranks_together([Batch(*batch) for batch in batches], num_generations=8)


def test_two_ranks_under_zero2_take_the_first_step_of_one(one_rank, zero2):
    first, *split = (Batch(*rank["batches"][0]) for rank in [*one_rank, *zero2])
    assert first.completion_ids == [ids for batch in split for ids in batch.completion_ids]
    assert zero2[0]["history"][0]["grad_norm"] == pytest.approx(one_rank[0]["history"][0]["grad_norm"], rel=1e-3)
    assert "DEEPSPEED" in zero2[0]["engine"]
