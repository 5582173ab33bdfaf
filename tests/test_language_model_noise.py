"""How much of a gradient is signal: each number against cases whose answer is known, and a whole small measurement."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.language_model import noise
from benchmarks.language_model.__main__ import main
from benchmarks.language_model.gradients import moments, over_base, sources, tokens_of
from benchmarks.language_model.noise import CREDITS, GROUP, Judged, of_a_step
from tempo_trl.credit.spans import criteria_of
from tempo_trl.demo.language_model import Source
from tempo_trl.rewards import SpanReward

TEMPERATURE = 0.7


def test_a_group_s_gradient_is_that_of_its_loss(tiny_model):
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    prompt, rows = [3, 4, 5], [[7, 8, 9], [10, 11], [12, 13, 14, 15]]
    advantages = torch.randn(3, 4) * (torch.arange(4) < torch.tensor([[3], [2], [4]]))
    ours = tokens_of(model, prompt, rows, TEMPERATURE).gradient(advantages)
    weight, loss = model.model.layers[-1].mlp.down_proj.weight, 0.0
    for row, own in zip(rows, advantages, strict=True):
        logits = model(input_ids=torch.tensor([prompt + row])).logits[0, 2:-1] / TEMPERATURE
        loss = loss + (logits.log_softmax(dim=-1)[range(len(row)), row] * own[: len(row)]).sum()
    (expected,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_noise_to_signal_does_not_depend_on_the_length_of_a_gradient():
    torch.manual_seed(0)
    prompts = [[torch.randn(4, 5) + 1 for _ in range(5)] for _ in range(6)]
    base = [moments(groups, groups) for groups in prompts]
    twice = [moments([2 * own for own in groups], groups) for groups in prompts]
    numbers = over_base(twice, base)
    assert numbers["noise_to_signal"] == pytest.approx([1.0, 1.0, 1.0])
    assert numbers["cosine"] == pytest.approx([1.0, 1.0, 1.0])


def test_a_credit_with_half_of_the_noise_and_at_a_right_angle_in_half_of_its_signal():
    torch.manual_seed(0)
    signal, across = torch.eye(400)[0], torch.eye(400)[1]
    draws = [[torch.randn(400) / 20 for _ in range(5)] for _ in range(60)]
    base = [[signal + noise for noise in own] for own in draws]
    other = [[signal + across + 0.5**0.5 * noise for noise in own] for own in draws]
    ours = [moments(own, groups) for own, groups in zip(other, base, strict=True)]
    numbers = over_base(ours, [moments(groups, groups) for groups in base])
    assert numbers["noise_to_signal"][0] == pytest.approx(0.5, abs=0.05)
    assert numbers["cosine"][0] == pytest.approx(0.5**0.5, abs=0.05)


def test_the_squared_norm_of_a_gradient_is_the_completions_chance_and_the_prompts_and_the_signal():
    torch.manual_seed(0)
    signal, noise = torch.zeros(400), torch.eye(400)
    signal[:4] = 0.5  # a squared norm of 1, of 4 from the prompt and 5 from the completions
    of_prompts = [signal + 2 * noise[4 + p] for p in range(60)]
    groups = [[mean + 5**0.5 * torch.randn(400) / 20 for _ in range(5)] for mean in of_prompts]
    found = sources(
        [moments(own, own) for own in groups], torch.stack([torch.stack(own).mean(dim=0) for own in groups])
    )
    assert {name: own[0] for name, own in found.items()} == pytest.approx(
        {"completions": 0.5, "prompts": 0.4, "signal": 0.1}, abs=0.03
    )
    assert all(low <= value <= high for value, low, high in found.values())


def test_a_step_of_eight_prompts_has_an_eighth_of_the_noise():
    signal, rest = 0.3, 2.4
    assert of_a_step(signal / (signal + rest), 8) == pytest.approx(signal / (signal + rest / 8))


def group() -> Judged:
    """Eight answers of six tokens and two checks, of tokens 1 and 4: the first is right in half of them."""
    judged = [{"a": (float(row % 2), [(1, 2)]), "b": (float(row == 0), [(4, 5)])} for row in range(GROUP)]
    ids = [[5, 6 + row % 2, 7, 8, 9 + (row == 0), 11] for row in range(GROUP)]
    return Judged(ids, criteria_of(judged, {"a": 1.0, "b": 1.0}, most=1))


def test_grpo_gets_the_sum_and_each_span_credit_the_checks_in_their_places():
    found = {name: credit(group()) for name, credit in CREDITS.items()}
    a, b = torch.arange(8) % 2 * 1.0, (torch.arange(8) == 0) * 1.0
    of_a, of_b, of_both = ((x - x.mean()) / (x.std() + 1e-4) for x in (a, b, (a + b) / 2))
    torch.testing.assert_close(found["grpo"], of_both[:, None].expand(-1, 6))
    torch.testing.assert_close(found["each check on all tokens"], (of_a + of_b)[:, None].expand(-1, 6))
    place = torch.stack([0 * a, of_a, 0 * a, 0 * a, of_b, 0 * a], dim=1)
    torch.testing.assert_close(found["span_credit"], place)
    up_to = torch.stack([of_a + of_b, of_a + of_b, of_b, of_b, of_b, 0 * a], dim=1)
    torch.testing.assert_close(found["span_credit lambda 1"], up_to)
    assert found["span_credit shuffled"].sum(dim=1) == pytest.approx(place.sum(dim=1))
    assert not torch.equal(found["span_credit shuffled"], found["span_credit"])
    assert torch.equal(found["tempo"][:, 2], found["grpo"][:, 2])  # nobody branches there


def test_shuffled_places_are_those_of_the_completion_in_another_order_and_of_criteria_that_judged_it():
    rewards, ids = torch.tensor([[1.0, torch.nan, 0.0, 1.0]] * 20), [[row, 2, 3] for row in range(20)]
    orders = [noise._permutation(*row).tolist() for row in zip(rewards, ids, strict=True)]
    assert all(sorted(order) == [0, 1, 2, 3] and order[1] == 1 for order in orders)
    assert len({tuple(order) for order in orders}) > 2
    assert noise._permutation(rewards[0], ids[0]).tolist() == orders[0]
    starts = torch.arange(80).reshape(20, 4, 1)
    criteria = noise.Criteria(tuple("abcd"), rewards, starts, starts + 1, torch.ones(4))
    moved = noise.permuted(criteria, ids)
    assert moved.starts[:, :, 0].tolist() == [[4 * row + k for k in order] for row, order in enumerate(orders)]
    assert torch.equal(moved.ends, moved.starts + 1)


def is_even(texts: list[str], **columns) -> list[list[SpanReward]]:
    """A check that a tiny model passes now and then, because it writes no JSON."""
    return [[SpanReward("even", float(len(text) % 2 == 0), 0, 1)] for text in texts]


@pytest.mark.parametrize("study", ["orders", "tuned_orders"])
def test_policies_are_kept_side_by_side_and_shown(study, tiny_model, tmp_path, monkeypatch, capsys):
    published = tiny_model if study == "orders" else "nothing"  # the other study has a start of its own
    monkeypatch.setattr("tempo_trl.demo.language_model.language_model", lambda: Source(published, "a folder"))
    (tmp_path / "start_32").symlink_to(tiny_model)
    monkeypatch.setattr(noise, "GROUPS", 2)
    monkeypatch.setattr(noise, "functions", lambda task: {task: is_even})
    path = tmp_path / "orders.json"
    words = ["noise", "--task", study, "--prompts", "3", "--numbers", str(path), "--output", str(tmp_path)]
    for policy in ("start", tiny_model):
        assert main([*words, "--policy", policy]) == 0
    (start, other) = json.loads((tmp_path / "orders_noise.json").read_text())["policies"].values()
    assert start["credits"] == other["credits"] and set(start["credits"]) == set(CREDITS)
    for own in start["credits"].values():
        assert sum(own[part][0] for part in ("completions", "prompts", "signal")) == pytest.approx(1.0, abs=1e-4)
    assert start["credits"]["grpo"]["noise_to_signal"] == [1.0, 1.0, 1.0]
    assert f"start: 3 prompts, mean reward {start['reward']:.2f}" in capsys.readouterr().out
