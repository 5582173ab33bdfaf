"""What true values say about credit on the language model: each number against cases whose answer is known."""

import itertools
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.language_model import gradients, rollouts, truth, values
from benchmarks.language_model.__main__ import main
from benchmarks.language_model.rollouts import GROUP, PLACES, TEMPERATURE, Rolled
from tempo_trl.demo.language_model import Source


def rolled(rewards, states, length=30, start=(0.5, 0.5), tokens=()):
    """A group of equally long completions, whose states at each place have continuations with these rewards."""
    ids = [[5 + row] * length for row in range(GROUP + len(start))]
    return Rolled("no_comma", [1, 2], ids, [*rewards, *start], states, list(tokens))


def alike(value):
    """States of which every continuation has one reward, by completion."""
    return [[[reward] * 2 for _ in PLACES] for reward in value]


REWARDS = [1.0, 0.0] * (GROUP // 2)


def test_a_value_that_equals_the_reward_explains_all_and_one_that_equals_the_start_nothing():
    assert values.decided_by([rolled(REWARDS, alike(REWARDS))]) == [[1.0, 1.0, 1.0]] * len(PLACES)
    assert values.decided_by([rolled(REWARDS, alike([0.5] * GROUP))]) == [[0.0, 0.0, 0.0]] * len(PLACES)


def test_a_completion_that_has_ended_has_its_reward_as_its_value():
    short = rolled(REWARDS, [[[0.5] * 2] for _ in range(GROUP)], length=2)  # it ends before the second place
    one, other = values.true_values(short)
    assert one.tolist() == other.tolist() == [[0.5, 0.5, *[r] * (len(PLACES) - 1)] for r in REWARDS]
    assert values.running(short).tolist() == [[True, True] + [False] * (len(PLACES) - 1)] * GROUP


def test_the_squared_error_is_unbiased_however_few_continuations_there_are():
    p, estimate = 0.7, 0.4
    mean = 0.0
    for first, second in itertools.product((0.0, 1.0), repeat=2):
        chance = np.prod([p if reward else 1 - p for reward in (first, second)])
        group = rolled(REWARDS, [[[first, second] for _ in PLACES] for _ in range(GROUP)])
        errors = values.squared_errors([group], np.full((1, GROUP, 1 + len(PLACES)), estimate))
        mean += chance * errors[0, 1] / GROUP
    assert mean == pytest.approx((estimate - p) ** 2)


def test_the_error_of_k_rollouts_is_their_variance():
    p, mean = 0.7, 0.0
    for first, second in itertools.product((0.0, 1.0), repeat=2):
        chance = np.prod([p if reward else 1 - p for reward in (first, second)])
        group = rolled(REWARDS, [[[first, second] for _ in PLACES] for _ in range(GROUP)])
        mean += chance * values.rollout_errors([group], 4)[0, 1] / GROUP
    assert mean == pytest.approx(p * (1 - p) / 4)


@pytest.mark.filterwarnings("error")
def test_a_place_that_no_completion_reaches_has_no_error_to_compare():
    short = rolled(REWARDS, [[[0.5] * 2] for _ in range(GROUP)], length=2)
    errors = values.squared_errors([short], np.full((1, GROUP, 1 + len(PLACES)), 0.25))
    found = values.compared({"a guess": errors}, "a guess")["a guess"]
    assert found["error"] == [1.0, 1.0, 1.0]
    assert found["by_place"][:2] == [1.0, 1.0]
    assert np.isnan(found["by_place"][2:]).all()


def test_one_token_that_decides_has_all_of_the_squared_td_errors():
    decides_at_token_6_of_8 = [[0.5] * 6] * 5 + [[1.0] * 6] * 2
    group = rolled(REWARDS, alike(REWARDS), length=8, start=[0.5] * 6, tokens=[decides_at_token_6_of_8])
    shares = {name: share[0] for name, share in values.concentration([group]).items()}
    assert shares == {f"largest {n}": 1.0 for n in (1, 2, 4)} | {f"quarter {n}": float(n == 3) for n in range(1, 5)}


def test_true_td_errors_of_places_sum_to_the_reward_less_the_start():
    true = np.random.default_rng(0).random((GROUP, 1 + len(PLACES)))
    group = rolled(REWARDS, alike(REWARDS))
    td = truth._true_td(group, true)
    firsts = td[:, [0, *PLACES]]  # one token of each stretch between places
    np.testing.assert_allclose(firsts.sum(axis=1), REWARDS - true[:, 0])
    over = truth._true_baseline(group, true)
    np.testing.assert_allclose(over[:, PLACES[2]], REWARDS - true[:, 3])


@pytest.fixture(scope="module")
def model(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


def test_a_group_s_gradient_is_that_of_its_loss(model):
    rows = [[7, 8, 9], [10, 11], [12, 13, 14, 15]]
    group = Rolled("no_comma", [3, 4, 5], rows, [0.0] * 3, [], [])
    advantages = np.random.default_rng(0).normal(size=(3, 4)) * (np.arange(4) < np.array([[3], [2], [4]]))
    ours = gradients.tokens_of(model, group).gradient(advantages)
    weight, loss = model.model.layers[-1].mlp.down_proj.weight, 0.0
    for row, own in zip(rows, advantages, strict=True):
        logits = model(input_ids=torch.tensor([group.prompt_ids + row])).logits[0, 2:-1] / TEMPERATURE
        logps = logits.log_softmax(dim=-1)[range(len(row)), row]
        loss = loss + (logps * torch.from_numpy(own[: len(row)]).float()).sum()
    (expected,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_noise_to_signal_does_not_depend_on_the_length_of_a_gradient():
    torch.manual_seed(0)
    prompts = [[torch.randn(4, 5) + 1 for _ in range(5)] for _ in range(6)]
    rloo = [gradients.moments(groups, groups) for groups in prompts]
    twice = [gradients.moments([2 * own for own in groups], groups) for groups in prompts]
    numbers = gradients.over_rloo(twice, rloo)
    assert numbers["noise_to_signal"] == pytest.approx([1.0, 1.0, 1.0])
    assert numbers["cosine"] == pytest.approx([1.0, 1.0, 1.0])


def test_the_squared_norm_of_a_gradient_is_the_completions_chance_and_the_prompts_and_the_signal():
    torch.manual_seed(0)
    signal, noise = torch.zeros(400), torch.eye(400)
    signal[:4] = 0.5  # a squared norm of 1, of 4 from the prompt and 5 from the completions
    of_prompts = [signal + 2 * noise[4 + p] for p in range(60)]
    groups = [[mean + 5**0.5 * torch.randn(400) / 20 for _ in range(5)] for mean in of_prompts]
    moments = [gradients.moments(own, own) for own in groups]
    found = gradients.sources(moments, torch.stack([torch.stack(own).mean(dim=0) for own in groups]))
    assert {name: own[0] for name, own in found.items()} == pytest.approx(
        {"completions": 0.5, "prompts": 0.4, "signal": 0.1}, abs=0.03
    )
    assert all(low <= value <= high for value, low, high in found.values())


def test_errors_of_true_values_do_not_count_as_noise():
    one, rloo = torch.ones(2, 2), [torch.ones(2, 2)] * 3
    error = torch.tensor([[1.0, -1.0], [0.0, 0.0]])
    squares = [
        gradients.moments_of_truth(one + a * error, one + b * error, rloo).square for a in (-1, 1) for b in (-1, 1)
    ]
    assert np.mean(squares) == float((one * one).sum())


def test_all_numbers_of_a_policy_are_measured_and_a_second_call_samples_nothing(tiny_model, tmp_path, monkeypatch):
    sizes = {"ROLLOUTS": 8, "TOKEN_ROLLOUTS": 6, "MAX_TOKENS": 6, "EACH_TOKEN": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(rollouts, name, value)
    monkeypatch.setattr(truth, "TAUGHT", 4)
    # The tiny model writes no prose: another reward, which depends on the text.
    monkeypatch.setattr(rollouts, "instruction_reward", lambda texts, **_: [float(len(t) % 2) for t in texts])
    numbers = truth.measure(tiny_model, 2, 1, tmp_path)
    assert numbers["prompts"] == 2
    assert len(numbers["decided_by"]) == len(PLACES)
    assert numbers["errors"][truth.MEAN]["error"] == [1.0, 1.0, 1.0]
    assert set(numbers["gradient"]) >= {truth.MEAN, "TEMPO", "prefix baseline", "true TD errors"}
    assert numbers["gradient"][truth.MEAN]["noise_to_signal"][0] == pytest.approx(1.0)
    assert sum(share[0] for share in numbers["sources"].values()) == pytest.approx(1.0)
    monkeypatch.setattr(rollouts, "Player", lambda *_: pytest.fail("it samples again"))
    assert truth.measure(tiny_model, 2, 1, tmp_path)["decided_by"] == numbers["decided_by"]


def test_policies_are_kept_side_by_side_and_a_number_that_is_none_is_left_out(tmp_path, monkeypatch, capsys):
    three = [0.5, 0.4, None]
    numbers = {
        "prompts": 2,
        "reward": 0.25,
        "decided_by": [three] * len(PLACES),
        "errors": {truth.MEAN: {"error": three, "by_place": [1.0, float("nan")] * 4}},
        "td_errors": {"largest 1": three},
        "gradient": {truth.MEAN: {"noise_to_signal": three, "cosine": three}},
        "sources": {"completions": three, "prompts": three, "signal": three},
    }
    monkeypatch.setattr(truth, "measure", lambda *_: dict(numbers))
    monkeypatch.setattr("tempo_trl.demo.language_model.language_model", lambda: Source("a folder", "somewhere"))
    path = tmp_path / "cells.json"
    for policy in ("start", "runs/trained"):
        assert main(["truth", "--policy", policy, "--numbers", str(path), "--output", str(tmp_path)]) == 0
    assert list(json.loads((tmp_path / "cells_truth.json").read_text())["policies"]) == ["start", "trained"]
    shown = capsys.readouterr().out
    assert "trained: 2 prompts, mean reward 0.25" in shown
    assert "0.50 [0.40, nan]" in shown
