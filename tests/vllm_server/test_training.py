"""A real vLLM server samples for real ranks: updated weights reach it, and credit is built from the ids it sends."""

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tempo_trl.credit import tempo_advantages

from ..credit.groups import as_tensors
from ..trainers.engines import launcher_of
from ..trainers.launching import free_port, run_ranks, torchrun
from ..trainers.recording import Batch

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")

STEPS = 4
ONE_RANK = "per_device_train_batch_size=24"  # as many completions as two ranks of 12
# engine (None: one rank, without a launcher), kind of weights, options
CASES = {
    "1 rank": (None, "full", ONE_RANK),
    "2 ranks": ("torchrun", "full"),
    "ZeRO-2": ("zero2", "full"),
    "ZeRO-3": ("zero3", "full"),
    "1 rank, LoRA": (None, "lora", ONE_RANK),
    "2 ranks, LoRA": ("ddp", "lora"),
    "ZeRO-3, LoRA": ("zero3", "lora"),
}
SAVED = {"full": "model.safetensors", "lora": "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def run(server, served_model, tmp_path_factory):
    """Train once for each case: (the weights that were saved, what each rank wrote)."""
    done = {}

    def train(engine: str | None, weights: str, *options: str):
        if (engine, weights, *options) not in done:
            folder = tmp_path_factory.mktemp(f"{engine}-{weights}")
            launchers = {None: torchrun(1), "torchrun": torchrun(2)}
            launcher = launchers[engine] if engine in launchers else launcher_of(engine, folder)
            arguments = (served_model, folder, server.url, weights, f"vllm_group_port={free_port()}", *options)
            written = run_ranks(launcher, 1 if engine is None else 2, "tests.vllm_server.rank", *arguments)
            done[engine, weights, *options] = load_file(folder / SAVED[weights]), written
        return done[engine, weights, *options]

    return train


def together(batches: list[Batch]) -> tuple[list[list[int]], torch.Tensor, torch.Tensor]:
    """Completion ids, weighted rewards and advantages of all ranks, in sampler order."""
    ids = [row for batch in batches for row in batch.completion_ids]
    rewards = batches[0].rewards_per_func
    summed = rewards.nansum(dim=1).masked_fill(rewards.isnan().all(dim=1), math.nan)
    width = max(map(len, ids))
    advantages = [
        torch.nn.functional.pad(b.output["advantages"], (0, width - b.output["advantages"].shape[1])) for b in batches
    ]
    return ids, summed, torch.cat(advantages)


def assert_credit_is_that_of_all_ranks_together(batches: list[Batch], num_generations: int):
    """The batches of one generation, a rank each, hold the advantages that `credit/` gives to all of their ids."""
    ids, rewards, advantages = together(batches)
    expected = tempo_advantages(*as_tensors(ids, rewards.tolist()), num_generations)
    torch.testing.assert_close(advantages, expected, rtol=1e-4, atol=1e-5)
    assert all(batch.output["advantages"].shape == batch.output["completion_ids"].shape for batch in batches)


def steps(ranks: list[dict]) -> list[list[Batch]]:
    return [[Batch(*batch) for batch in batches] for batches in zip(*(rank["batches"] for rank in ranks), strict=True)]


@pytest.mark.parametrize("case", CASES)
def test_at_every_step_the_server_samples_from_the_weights_of_that_step(case, run):
    _, ranks = run(*CASES[case])
    for rank in ranks:
        assert len(rank["batches"]) == STEPS
        for batch, own in zip(rank["batches"], rank["own_logps"], strict=True):
            sampled = Batch(*batch).output["sampling_per_token_logps"]
            torch.testing.assert_close(sampled, own, rtol=0, atol=2e-5)


def test_weights_that_stayed_behind_would_be_seen(run, served_model):
    """The test above can fail: under the first weights, what is sampled last has other probabilities by far."""
    _, [rank] = run(*CASES["1 rank"])
    output = Batch(*rank["batches"][-1]).output
    ids, mask = (torch.cat([output[f"prompt_{x}"], output[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
    first, length = AutoModelForCausalLM.from_pretrained(served_model, dtype=torch.float32), mask.shape[1]
    with torch.no_grad():
        logps = first(ids, attention_mask=mask).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    stale = logps[:, length - 1 - output["completion_ids"].shape[1] :]
    assert ((stale - output["sampling_per_token_logps"]) * output["completion_mask"]).abs().max() > 0.1


@pytest.mark.parametrize("case", CASES)
def test_credit_is_that_of_the_ids_that_the_server_sent(case, run):
    _, ranks = run(*CASES[case])
    for batches in steps(ranks):
        assert_credit_is_that_of_all_ranks_together(batches, num_generations=8)
        assert any((batch.output["advantages"].std(dim=1) > 1e-3).any() for batch in batches)  # token by token


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_together_arrive_at_the_weights_of_one(case, run):
    weights, _ = run(*CASES[case])
    expected, _ = run(None, CASES[case][1], ONE_RANK)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", SAVED)
def test_zero3_is_really_sharded(weights, run):
    _, ranks = run("zero3", weights)
    assert [rank["resident"] for rank in ranks] == [0, 0]
    assert "DEEPSPEED" in ranks[0]["engine"]
