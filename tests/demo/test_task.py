"""The demonstration's task tells the truth about credit, and its starting policy is what its card says."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.learning.warm_start import (
    accuracy,
    sampled_completions,
    slip_rates,
    warm_started_policy,
)
from tempo_trl.demo.policy import (
    CHARACTERS,
    character_tokenizer,
    load_policy,
    policy_path,
    tiny_policy_config,
    write_policy,
)
from tempo_trl.demo.task import (
    correct_answer,
    draw_problems,
    first_slip,
    problems,
    slipped_solution,
    split_of,
    worked_solution,
)

STEP = len("7+5=2;")
texts_of_problems = st.from_regex(r"[0-9]([+-][0-9]){1,6}\?", fullmatch=True)


@pytest.fixture(scope="module")
def held_out() -> list[str]:
    return draw_problems(128, random.Random(1), split="test")


# The task


def test_the_worked_solution_of_the_docstring():
    # 7 + 5 = 12, written 2; 2 - 3 = -1, written 9.
    assert worked_solution("7+5-3?") == "7+5=2;2-3=9#9"


@given(texts_of_problems)
def test_the_right_solution_has_no_slip(problem):
    assert first_slip(problem, worked_solution(problem)) is None


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


@given(texts_of_problems, st.integers(0, 2**32))
def test_sure_slips_begin_at_the_first_result_and_no_slips_at_none(problem, seed):
    assert first_slip(problem, slipped_solution(problem, random.Random(seed), slip_rate=1.0)) == STEP - 2
    assert first_slip(problem, slipped_solution(problem, random.Random(seed), slip_rate=0.0)) is None


@pytest.mark.parametrize(
    ("completion", "index"),
    [
        ("7+6=3;3-3=0#0", 2),  # operand miscopied
        ("7+5=2;3-3=0#0", 6),  # result miscopied
        ("7+5=2;2-3=9#8", 12),  # answer is not the last result
        ("7+5=2;2-3=9", 11),  # stops early: the place of its EOS
        ("7+5=2;2-3=9#9#9", 13),  # goes on too long
        ("", 0),
    ],
)
def test_first_slip_finds_what_is_no_wrong_result(completion, index):
    assert first_slip("7+5-3?", completion) == index


def test_slips_fall_on_each_step_at_their_rate():
    rng = random.Random(0)
    drawn = draw_problems(20_000, rng)
    solutions = [slipped_solution(problem, rng, 0.15) for problem in drawn]
    assert slip_rates(drawn, solutions) == (pytest.approx(0.15, abs=0.005), 0)
    # 0.1 + 0.9 (1 - 0.15 / 0.9)^5 = 0.4617: slips that cancel lift it above 0.85^5 = 0.4437.
    assert accuracy(drawn, solutions) == pytest.approx(0.4617, abs=0.015)


def test_the_reward_reads_what_follows_the_last_hash():
    completions = ["7+5=2;2-3=9#9", "1#8#9", "9", "7+5=2;2-3=9#9#", "#99"]
    assert correct_answer(completions, ["9"] * 5, prompts=["7+5-3?"] * 5) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_train_and_held_out_problems_do_not_meet():
    # One step: all 200 problems are drawn, so the two splits are seen whole.
    train, test = (set(problems(5_000, seed=0, steps=1, split=split)["prompt"]) for split in ("train", "test"))
    assert not train & test
    assert len(train | test) == 200


def test_one_problem_in_ten_is_held_out_whatever_it_begins_with():
    for digit in "0123456789":
        drawn = [f"{digit}{term}{digit}+{n % 10}-{n // 10}?" for n in range(100) for term in "+-"]
        assert 0.02 < sum(split_of(problem) == "test" for problem in drawn) / len(drawn) < 0.25


def test_equal_seeds_give_equal_problems_with_their_answers():
    rows = problems(32, seed=3)
    assert rows.to_dict() == problems(32, seed=3).to_dict() != problems(32, seed=4).to_dict()
    assert all(worked_solution(row["prompt"]).endswith("#" + row["answer"]) for row in rows)


@pytest.mark.parametrize(
    "call",
    [
        lambda: worked_solution("7+5-3"),
        lambda: worked_solution("7+15?"),
        lambda: slipped_solution("7+5?", random.Random(0), slip_rate=1.5),
        lambda: problems(1, seed=0, split="validation"),
        lambda: problems(1, seed=0, steps=0),
        lambda: correct_answer([[{"role": "assistant", "content": "#9"}]], ["9"]),
    ],
)
def test_what_is_not_of_the_task_is_refused(call):
    with pytest.raises(ValueError):
        call()


# The policy


@given(st.text(CHARACTERS))
def test_the_tokenizer_gives_one_token_a_character_and_the_text_back(text):
    tokenizer = character_tokenizer()
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id, tokenizer.pad_token_id], skip_special_tokens=True) == text


def test_the_shipped_folder_loads_by_the_auto_classes_and_is_small():
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(policy_path()),
        AutoTokenizer.from_pretrained(policy_path()),
    )
    assert model.dtype == torch.float32
    assert 0.7e6 < model.num_parameters() < 1e6
    assert tokenizer.get_vocab() == character_tokenizer().get_vocab()
    assert tokenizer.padding_side == "left"
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (
        model.generation_config.pad_token_id,
        model.generation_config.eos_token_id,
    )
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert sum(file.stat().st_size for file in policy_path().iterdir()) < 3e6


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


def test_a_written_policy_loads_as_its_weights_rounded_to_half(tmp_path):
    model = warm_started_policy(seed=0, train_steps=1, batch_size=2)
    write_policy(model, character_tokenizer(), tmp_path)
    loaded, _ = load_policy(tmp_path)
    assert loaded.config.vocab_size == tiny_policy_config().vocab_size
    assert all(torch.equal(loaded.state_dict()[name], w.half().float()) for name, w in model.state_dict().items())
