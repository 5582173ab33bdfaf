"""The demo's sampler draws what the model says, and training with it differs from TRL's in nothing else."""

from contextlib import nullcontext
from types import SimpleNamespace

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


APART = [[7, 8, 9], [10, 11, 12, 13, 14], [15]]
BEGIN_ALIKE = [[7, 8, 9], [7, 8, 10, 11, 12, 13], [7, 8]]
ONE_TEXT = [[7, 8, 9], [7, 8, 9], [7, 8, 9]]


@pytest.mark.parametrize("prefixes", [APART, BEGIN_ALIKE, ONE_TEXT])
def test_continuations_are_those_of_transformers_where_sampling_is_greedy(prefixes, model):
    counts = [2, 1, 3]
    long = model.generate(torch.tensor(prefixes[:1]), do_sample=False, max_new_tokens=20)[0, len(prefixes[0]) :]
    for eos in long[::4].tolist():  # ends some of the rows early
        ours = sampled(model, prefixes, counts, 40, [eos, 31], temperature=1e-6)
        assert [len(own) for own in ours] == counts
        for prefix, own in zip(prefixes, ours, strict=True):
            ids = torch.tensor([prefix])
            expected = model.generate(ids, do_sample=False, max_new_tokens=40, eos_token_id=[eos, 31])
            assert all(row == expected[0, len(prefix) :].tolist() for row in own)
        assert len(ours[0][0]) < 20


def test_tokens_are_drawn_as_often_as_they_are_likely():
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, -1.0, -torch.inf, 0.5], [2.0, -torch.inf, 0.0, 1.0, 0.0]])
    states = torch.arange(20_000) % 2
    tokens = drawn(logits, states, 0.8)
    for state, own in enumerate(logits):
        shares = torch.bincount(tokens[states == state], minlength=5) / 10_000
        torch.testing.assert_close(shares, (own / 0.8).softmax(dim=0), atol=0.02, rtol=0)
        assert (shares[own.isinf()] == 0).all()


def test_tokens_that_float32_would_round_away_can_be_drawn(monkeypatch):
    logits = torch.tensor([[0.0, -20.0, -30.0]])  # exp(-20) is 2e-9, less than a step of float32 below 1
    monkeypatch.setattr(torch, "rand", lambda *size, dtype: torch.tensor([0.5, 1 - 1e-9, 1 - 2e-14], dtype=dtype))
    assert drawn(logits, torch.tensor([0, 0, 0]), 1.0).tolist() == [0, 1, 2]


@torch.no_grad()
@pytest.mark.parametrize("prefixes", [APART, BEGIN_ALIKE, ONE_TEXT])
def test_each_row_is_drawn_from_its_own_state(prefixes, model, monkeypatch):
    torch.manual_seed(0)
    steps, counts = [], [4, 1, 6]
    monkeypatch.setattr(
        sampling, "drawn", lambda logits, states, t: steps.append(logits[states]) or drawn(logits, states, t)
    )
    found = sampled(model, prefixes, counts, 12, list(range(0, 300, 9)), 0.01)
    rows = [(prefix, ids) for prefix, own in zip(prefixes, found, strict=True) for ids in own]
    assert len({len(ids) for _, ids in rows}) > 2
    alone = [model(torch.tensor([prefix + ids[:-1]])).logits[0, len(prefix) - 1 :] for prefix, ids in rows]
    for t, logits in enumerate(steps):  # of the rows that have not ended, in their order
        expected = torch.stack([own[t] for own in alone if len(own) > t])
        torch.testing.assert_close(logits.log_softmax(-1), expected.log_softmax(-1), rtol=1e-4, atol=1e-4)


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


def test_equal_prompts_in_any_order_are_read_once_and_each_row_gets_its_own_completion(monkeypatch):
    read = []

    def told(model, prefixes, counts, **_):
        read.extend(prefixes)
        return [[[*prefix, copy] for copy in range(count)] for prefix, count in zip(prefixes, counts, strict=True)]

    monkeypatch.setattr(sampling, "sampled", told)
    monkeypatch.setattr(sampling, "unwrap_model_for_generation", lambda *_: nullcontext())
    trainer = SimpleNamespace(
        model_wrapped=None,
        accelerator=SimpleNamespace(autocast=nullcontext),
        max_completion_length=8,
        eos_token_ids=[0],
        args=SimpleNamespace(temperature=1.0),
    )
    completions, _ = sampling._completions(trainer, [[1, 2], [3], [1, 2], [4], [3]])
    assert read == [[1, 2], [3], [4]]
    assert completions == [[1, 2, 0], [3, 0], [1, 2, 1], [4, 0], [3, 1]]
