"""On two real ranks, with DDP, ZeRO-2 and sharded ZeRO-3, the tree arrives at the weights of the stock run."""

import pytest
import torch
from safetensors.torch import load_file

from ..trainers.engines import NEEDS_DEEPSPEED, runs_of

pytestmark = pytest.mark.matrix

ENGINES = ["ddp", *(pytest.param(engine, marks=NEEDS_DEEPSPEED) for engine in ("zero2", "zero3"))]


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return runs_of("tests.tree_forward.tree_rank", tiny_model, tmp_path_factory.mktemp)


@pytest.mark.parametrize("policy", ["off_policy", "on_policy"])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_weights_and_the_evaluation_are_those_of_the_stock_run(engine, policy, run, tiny_model):
    (folder, ranks), (stock_folder, stock_ranks) = run(engine, "on", policy), run("ddp", "off", policy)
    ours, expected = (load_file(f / "model.safetensors") for f in (folder, stock_folder))
    assert [rank["state"] for rank in (*ranks, *stock_ranks)] == ["IN_USE", "IN_USE", "OFF", "OFF"]
    assert ours.keys() == expected.keys()
    start = load_file(f"{tiny_model}/model.safetensors")
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)
    assert sum(not torch.equal(value, start[name]) for name, value in ours.items()) > len(ours) / 2
    for key in ("eval_loss", "eval_entropy", "grad_norm"):
        theirs = [entry[key] for entry in stock_ranks[0]["history"] if key in entry]
        assert [entry[key] for entry in ranks[0]["history"] if key in entry] == pytest.approx(theirs, 1e-3, 1e-5)


def test_the_packing_ratio_is_that_of_all_ranks(run):
    logged = [
        [entry.get("tempo/packing_ratio") for entry in rank["history"]] for rank in run("ddp", "on", "off_policy")[1]
    ]
    assert logged[0] == logged[1]
    assert all(ratio > 2 for ratio in logged[0] if ratio is not None)
