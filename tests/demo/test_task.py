"""The task `sums` and its tiny policy are what they say."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.policy import CHARACTERS, character_tokenizer
from tempo_trl.demo.task import correct_answer, problems, worked_solution


def test_the_worked_solution_of_the_docstring():
    # 7 + 5 = 12, written 2; 2 - 3 = -1, written 9.
    assert worked_solution("7+5-3?") == "7+5=2;2-3=9#9"


def test_the_reward_reads_what_follows_the_last_hash():
    completions = ["7+5=2;2-3=9#9", "1#8#9", "9", "7+5=2;2-3=9#9#", "#99"]
    assert correct_answer(completions, ["9"] * 5, prompts=["7+5-3?"] * 5) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_train_and_held_out_problems_do_not_meet():
    # One step: all 200 problems are drawn, so the two splits are seen whole.
    train, test = (set(problems(5_000, seed=0, steps=1, split=split)["prompt"]) for split in ("train", "test"))
    assert not train & test
    assert len(train | test) == 200


def test_equal_seeds_give_equal_problems_with_their_answers():
    rows = problems(32, seed=3)
    assert rows.to_dict() == problems(32, seed=3).to_dict() != problems(32, seed=4).to_dict()
    assert all(worked_solution(row["prompt"]).endswith("#" + row["answer"]) for row in rows)


@given(st.text(CHARACTERS))
def test_the_tokenizer_gives_one_token_a_character_and_the_text_back(text):
    tokenizer = character_tokenizer()
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id, tokenizer.pad_token_id], skip_special_tokens=True) == text
