"""ZeRO-2, sharded ZeRO-3 and ZeRO-3 with CPU offload on two real ranks: the weights that DDP arrives at."""

import pytest
import torch
from safetensors.torch import load_file

from .engines import NEEDS_DEEPSPEED, ZERO, runs_of
from .recording import assert_same

pytestmark = [pytest.mark.matrix, NEEDS_DEEPSPEED]

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
SAVED = {"full": "model.safetensors", "lora": "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return runs_of("tests.trainers.zero", tiny_model, tmp_path_factory.mktemp)


@pytest.mark.parametrize("weights", SAVED)
@pytest.mark.parametrize("engine", ZERO)
def test_the_weights_and_the_credit_are_those_of_ddp(engine, weights, run, tiny_model):
    (folder, ranks), (ddp_folder, ddp_ranks) = run(engine, weights), run("ddp", weights)
    assert "DEEPSPEED" in ranks[0]["engine"]
    assert "DEEPSPEED" not in ddp_ranks[0]["engine"]
    trained, expected = (load_file(f / SAVED[weights]) for f in (folder, ddp_folder))
    assert_same(trained, expected, **CLOSE)
    for rank, ddp_rank in zip(ranks, ddp_ranks, strict=True):
        assert rank["evaluated"] == ddp_rank["evaluated"]
        for ours, theirs in zip(rank["advantages"], ddp_rank["advantages"], strict=True):
            assert torch.equal(ours, theirs)
    start = load_file(f"{tiny_model}/model.safetensors")
    moved = [name for name, value in trained.items() if name not in start or not torch.equal(value, start[name])]
    assert len(moved) > len(trained) / 2


@pytest.mark.parametrize("weights", SAVED)
@pytest.mark.parametrize("engine", ["zero3", "zero3_offload"])
def test_zero3_is_really_sharded(engine, weights, run):
    assert [rank["resident"] for rank in run(engine, weights)[1]] == [0, 0]
    assert all(rank["resident"] > 10_000 for rank in run("zero2", weights)[1])


@pytest.mark.parametrize("weights", SAVED)
@pytest.mark.parametrize("engine", ZERO)
def test_a_checkpoint_resumes_to_the_same_weights(engine, weights, run):
    folder, _ = run(engine, weights)
    resumed, ranks = run(engine, weights, str(folder / "checkpoint-2"))
    assert len(ranks[0]["evaluated"]) == 2
    assert len(ranks[0]["advantages"]) < len(run(engine, weights)[1][0]["advantages"])
    assert_same(load_file(resumed / SAVED[weights]), load_file(folder / SAVED[weights]), **CLOSE)
