"""The chain's solutions slip at their rate, and the shipped policy is what its card says."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.policy import load_policy
from benchmarks.learning.warm_start import (
    accuracy,
    first_slip,
    sampled_completions,
    slip_rates,
    warm_started_policy,
)
from tempo_trl.demo.task import draw_problems, worked_solution

STEP = len("7+5=2;")
texts_of_problems = st.from_regex(r"[0-9]([+-][0-9]){1,6}\?", fullmatch=True)


@pytest.fixture(scope="module")
def held_out() -> list[str]:
    return draw_problems(128, random.Random(1), split="test")


@given(texts_of_problems, st.integers(1, 9), st.data())
def test_first_slip_is_the_wrong_digit_of_the_slipped_step(problem, error, data):
    step = data.draw(st.integers(0, len(problem[1:-1]) // 2 - 1))
    right = worked_solution(problem)
    index = STEP * step + STEP - 2
    wrong = str((int(right[index]) + error) % 10)
    # What is left of the problem opens with the wrong value: its own worked solution is the consistent way on.
    rest = problem[2 * step + 3 :]
    tail = f"#{wrong}" if rest == "?" else ";" + worked_solution(wrong + rest)
    assert first_slip(problem, right[:index] + wrong + tail) == index


def test_the_shipped_policy_knows_the_arithmetic_and_slips(held_out):
    model, tokenizer = load_policy()
    assert accuracy(held_out, sampled_completions(model, tokenizer, held_out, seed=0, greedy=True)) > 0.97
    completions = sampled_completions(model, tokenizer, held_out, seed=0)
    assert 0.3 < accuracy(held_out, completions) < 0.65
    wrong_results, elsewhere = slip_rates(held_out, completions)
    assert 0.1 < wrong_results < 0.22
    assert elsewhere < 0.05


def test_rebuilding_is_deterministic():
    one, other = (warm_started_policy(seed=0, train_steps=3, batch_size=4).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
