"""The study's sampler draws what the model says, and training with it differs from TRL's in nothing else."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from benchmarks.language_model import sampling
from benchmarks.language_model.training import generate_single_turn


@pytest.fixture(scope="module")
def model(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


def test_continuations_are_those_of_transformers_where_sampling_is_greedy(model, monkeypatch):
    monkeypatch.setattr(sampling, "TEMPERATURE", 1e-6)
    prefixes, counts, limits = [[7, 8, 9], [10, 11, 12, 13, 14], [15]], [2, 1, 3], [40, 20, 40]
    ends = 50
    for eos in range(20, 40):  # one of them comes early in some of the rows
        ours = sampling.sampled(model, prefixes, counts, limits, [eos, 31])
        assert [len(own) for own in ours] == counts
        for prefix, own, limit in zip(prefixes, ours, limits, strict=True):
            ids = torch.tensor([prefix])
            expected = model.generate(ids, do_sample=False, max_new_tokens=limit, eos_token_id=[eos, 31])
            assert all(row == expected[0, len(prefix) :].tolist() for row in own)
        ends = min(ends, *(len(row) for own in ours for row in own))
    assert 0 < ends < 20


def test_tokens_are_drawn_as_often_as_they_are_likely():
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, -1.0, -torch.inf, 0.5])
    drawn = sampling.drawn(logits.expand(20_000, -1))
    shares = torch.bincount(drawn, minlength=5) / len(drawn)
    torch.testing.assert_close(shares, (logits / sampling.TEMPERATURE).softmax(dim=0), atol=0.02, rtol=0)
    assert shares[3] == 0


def test_the_trainer_gets_the_completions_that_trl_samples_where_sampling_is_greedy(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "TEMPERATURE", 1e-6)
    args = GRPOConfig(
        str(tmp_path), per_device_train_batch_size=4, num_generations=2, max_completion_length=9, bf16=False, top_k=1
    )
    prompts = Dataset.from_list([{"prompt": text} for text in ("Add 3 and 4.", "A longer prompt: name a colour.")])
    trainer = GRPOTrainer(tiny_model, lambda completions, **_: [0.0] * len(completions), args, prompts)
    trainer.args.temperature = sampling.TEMPERATURE
    ids = [[*own] for own in ([7, 8, 9], [10, 11, 12, 13, 14]) for _ in range(2)]
    theirs = trainer._generate_single_turn(ids, None, {}, 2)
    assert generate_single_turn(trainer, ids, None, {}, 2) == theirs
