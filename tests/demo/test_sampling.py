"""The demo's sampler draws what the model says, and training with it differs from TRL's in nothing else."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.demo import sampling
from tempo_trl.demo.sampling import drawn, sampled


@pytest.fixture(scope="module")
def model(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


def test_continuations_are_those_of_transformers_where_sampling_is_greedy(model):
    prefixes, counts, limits = [[7, 8, 9], [10, 11, 12, 13, 14], [15]], [2, 1, 3], [40, 20, 40]
    ends = 50
    for eos in range(20, 40):  # one of them comes early in some of the rows
        ours = sampled(model, prefixes, counts, limits, [eos, 31], temperature=1e-6)
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
    tokens = drawn(logits.expand(20_000, -1), 0.8)
    shares = torch.bincount(tokens, minlength=5) / len(tokens)
    torch.testing.assert_close(shares, (logits / 0.8).softmax(dim=0), atol=0.02, rtol=0)
    assert shares[3] == 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", theirs := GRPOTrainer._generate_single_turn)
    sampling.sample_quickly_on_a_cpu()
    return theirs


def trainer_of(model, folder, **changes):
    options = {"use_cpu": True, "per_device_train_batch_size": 4, "num_generations": 2, "bf16": False}
    args = GRPOConfig(str(folder), max_completion_length=9, **options, **changes)
    prompts = Dataset.from_list([{"prompt": text} for text in ("Add 3 and 4.", "A longer prompt: name a colour.")])
    return GRPOTrainer(model, lambda completions, **_: [0.0] * len(completions), args, prompts)


IDS = [[*own] for own in ([7, 8, 9], [10, 11, 12, 13, 14]) for _ in range(2)]


def test_a_trainer_gets_the_completions_that_trl_samples_where_sampling_is_greedy(tiny_model, tmp_path, quick):
    trainer = trainer_of(tiny_model, tmp_path, temperature=1e-6)
    assert trainer._generate_single_turn(IDS, None, {}, 2) == quick(trainer, IDS, None, {}, 2)


def test_it_takes_what_the_loop_of_tools_asks_for(tiny_model, tmp_path, quick):
    trainer = trainer_of(tiny_model, tmp_path, temperature=1e-6)
    alone = IDS[0], [9, 10]
    loop = {"num_generations": 1, "has_tool_images": False}
    assert trainer._generate_single_turn(alone, None, {}, **loop) == quick(trainer, alone, None, {}, 1)


@pytest.mark.parametrize(
    "setting", [{"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.1}, {"generation_kwargs": {"top_k": 1}}]
)
def test_other_settings_are_left_to_trl(setting, tiny_model, tmp_path, quick, monkeypatch):
    monkeypatch.setattr(sampling, "sampled", lambda *_, **__: pytest.fail("it samples with another setting"))
    trainer = trainer_of(tiny_model, tmp_path, **setting)
    ids, logprobs = trainer._generate_single_turn(IDS, None, {}, 2)
    assert len(ids) == 4
    assert logprobs is None
