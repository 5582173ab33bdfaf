"""Credit from perfect knowledge, by hand and by enumeration."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.learning import oracles, plan
from benchmarks.learning.chain import Chain, plain, slip_index, worded
from benchmarks.learning.plan import Plan, right_plan, success_along, success_probability
from benchmarks.learning.starts import rewards
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.demo.policy import character_tokenizer
from tempo_trl.demo.task import first_slip

S = (4 * 0.25 / 3) ** 0.5 + 1e-4  # GRPO's scale of a group of four with two right answers


def batch_of(task, problems, texts, size):
    """A scored batch: groups of `size` completions, each text with its EOS, padded with EOS."""
    tokenizer = character_tokenizer()
    rows = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max()) + 1), tokenizer.eos_token_id)
    for own, row in zip(ids, rows, strict=True):
        own[: len(row)] = torch.tensor(row)
    paid = torch.tensor(rewards(task, problems, texts))
    return SimpleNamespace(
        completion_ids=ids,
        lengths=lengths,
        rewards=paid,
        advantages=outcome_advantages(paid, size),
        num_generations=size,
        columns={"prompt": problems},
        loss_mask=torch.arange(ids.shape[1]) < lengths[:, None],
    )


def sampled(task, groups=40, size=8):
    rng = random.Random(0)
    problems = [problem for problem in task.draw(groups, rng, "train") for _ in range(size)]
    return batch_of(task, problems, [task.start_solution(problem, rng) for problem in problems], size)


def values_of(task):
    return oracles.plan_values if isinstance(task, Plan) else oracles.chain_values


CASES = [Chain(), Chain(wording=4), Plan()]
HAND = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]  # they slip nowhere, late, early, nowhere


def test_by_hand_the_slip_falls_to_the_worst_and_lifts_those_that_have_not_slipped():
    """V: 1/2, then 2/3 without the third at token 4, then 1 without the second at token 10."""
    batch = batch_of(Chain(2), ["7+5-3?"] * 4, HAND, 4)
    values = oracles.chain_values(batch)
    assert values[0].tolist() == pytest.approx([1 / 2] * 5 + [2 / 3] * 6 + [1.0] * 5)
    assert values[1].tolist() == pytest.approx([1 / 2] * 5 + [2 / 3] * 6 + [0.0] * 5)
    assert values[2].tolist() == pytest.approx([1 / 2] * 5 + [0.0] * 11)
    td = oracles.chain_td(batch)
    assert td[1, [3, 4, 10, 11]].tolist() == pytest.approx(
        [-0.5 / S, (-1 / 2 + 1 / 6) / S, (-1 / 2 - 2 / 3) / S, -0.5 / S]
    )
    baseline = oracles.chain_baseline(batch)
    assert baseline[1, [4, 5, 10, 11]].tolist() == pytest.approx([-0.5 / S, -2 / 3 / S, -2 / 3 / S, 0.0])
    assert baseline[0, [4, 5, 10, 11]].tolist() == pytest.approx([0.5 / S, 1 / 3 / S, 1 / 3 / S, 0.0])


@pytest.mark.parametrize("task", CASES, ids=lambda task: task.name)
def test_td_errors_sum_to_the_return_minus_the_start_value(task):
    batch, values = sampled(task), values_of(task)
    td = oracles.oracle_td(batch, values).double() - batch.advantages[:, None]
    over_start = oracles.oracle_baseline(batch, values)[:, 0]
    assert torch.where(batch.loss_mask, td, 0.0).sum(1).tolist() == pytest.approx(over_start.tolist(), abs=1e-5)


@pytest.mark.parametrize("task", CASES, ids=lambda task: task.name)
def test_the_value_of_the_start_is_the_mean_reward(task):
    batch = sampled(task)
    values = values_of(task)(batch)[:, 0]
    assert values.mean().item() == pytest.approx(batch.rewards.double().mean().item())


@pytest.mark.parametrize("task", CASES[:2], ids=lambda task: task.name)
def test_the_slip_has_the_most_negative_credit_of_a_wrong_completion(task):
    batch = sampled(task)
    advantages, slips = oracles.chain_td(batch), 0
    for row, text in enumerate(oracles.texts(batch)):
        slip = slip_index(batch.columns["prompt"][row], text)
        if slip is not None and batch.advantages[row] < 0:
            assert advantages[row].argmin() == slip
            assert text[slip - 1] == "="
            slips += 1
    assert slips > 50


@pytest.mark.parametrize("wording", [0, 1, 4])
def test_the_slip_of_a_worded_text_is_that_of_its_plain_form(wording):
    task, rng = Chain(slip_rate=0.3), random.Random(0)
    for problem in task.draw(200, rng, "train"):
        solution = task.start_solution(problem, rng)[: rng.choice([None, 10])]  # some stop early, where EOS slips
        text, slip = worded(solution, wording, rng), first_slip(problem, solution)
        found = slip_index(problem, text)
        assert (found is None) == (slip is None)
        if slip is not None:
            assert text[found:] == solution[slip:] or plain(text[found:]) == plain(solution[slip:])
            assert (found == len(text)) == (slip == len(solution))


def test_after_a_prefix_the_plans_value_is_the_share_of_its_continuations_that_succeed(monkeypatch):
    """Luck by the digit alone: of ten equally likely digits one fails the right plan and two the wrong one."""
    monkeypatch.setattr(plan, "luck", lambda problem, step, digit: int(digit) / 10 + 0.05)
    monkeypatch.setattr(plan, "RIGHT_FAILS", 0.1)
    monkeypatch.setattr(plan, "WRONG_FAILS", 0.2)
    for prefix in ("-55555555", "+55555555", "-55555550", "+555555550", "x55555555"):  # the right plan of 5 is -
        digits = map("".join, itertools.product("0123456789", repeat=11 - len(prefix)))
        continued = [f"{prefix}{rest}#" for rest in digits]
        enumerated = np.mean(plan.successful(["512345?"] * len(continued), continued))
        assert success_along("512345?", prefix)[-1] == pytest.approx(enumerated)


def test_the_plans_value_after_the_plan_is_its_success_probability_and_ends_at_what_was_earned():
    problem, right = "012345?", right_plan("012345?")
    text = next(t for t in (f"{right}{n:010d}#" for n in range(100)) if plan.successful([problem], [t]) == [1.0])
    along = success_along(problem, text)
    assert along[0] == pytest.approx(success_probability(1.0))
    assert along == sorted(along)
    assert along[-2:] == [1.0, 1.0]
    assert success_along(problem, "-;" + text)[0] == pytest.approx(success_probability(0.0))
    assert success_along(problem, f"{right};")[1] == success_along(problem, text + "#")[-1] == 0.0
    assert success_along(problem, "") == []


def test_a_group_with_equal_rewards_has_no_credit():
    batch = batch_of(Chain(2), ["7+5-3?"] * 8, [HAND[0], HAND[3], HAND[0], HAND[3], *HAND], 4)
    for credit in (oracles.chain_td, oracles.chain_baseline):
        assert not credit(batch)[:4].any()
        assert credit(batch)[4:].any()


def test_special_tokens_inside_a_completion_are_slips():
    batch = batch_of(Chain(2), ["7+5-3?"] * 4, HAND, 4)
    batch.completion_ids[0, 4] = character_tokenizer().pad_token_id
    assert [text[4] for text in oracles.texts(batch)] == ["<", "2", "3", "2"]
    assert slip_index("7+5-3?", oracles.texts(batch)[0]) == 4
