"""The task `instructions`: what each kind says, and own rows. Its splits: test_structured_tasks.py."""

import pytest

from tempo_trl.data import load_prompts
from tempo_trl.data.instructions import KINDS, TRAINED, generated_rows
from tempo_trl.rewards.instruction_checks import CHECKS, verdict

from .rows import write_file


def test_kinds_come_in_turn_and_one_is_never_trained():
    assert [row["kind"] for row in generated_rows("train", 18)] == [*TRAINED] * 2
    assert [row["kind"] for row in generated_rows("test", 20)] == [*KINDS] * 2
    assert set(KINDS) - set(TRAINED) == {"three_words"}
    assert set(KINDS) == set(CHECKS)


def test_a_slice_of_a_split_is_its_first_rows():
    whole, part = load_prompts("instructions", "test"), load_prompts("instructions", "test[:60]")
    assert part["prompt"] == whole["prompt"][:60]
    assert part["kind"][:10] == [*KINDS]


def test_what_an_instruction_names_is_in_its_text():
    for row in generated_rows("train", 90) + generated_rows("test", 100):
        assert all(word in row["instruction"].lower() for word in row["words"])
        assert row["kind"] != "max_words" or f"at most {row['number']} words" in row["instruction"]


OWN = {"instruction": "Begin with the word 'Today'.", "kind": "first_word", "words": ["Today"], "number": 0}


def test_words_of_own_rows_may_have_capitals(tmp_path):
    [row] = load_prompts("instructions", path=write_file(tmp_path / "own.jsonl", [OWN]))
    assert verdict("Today it rains all day.", row["kind"], row["words"], row["number"]).passed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "haiku"}, "kind is 'haiku', expected one of first_word, "),
        ({"words": None}, "words is None, expected a list of texts."),
        ({"words": "Today"}, "words is 'Today', expected a list of texts."),
        ({"words": []}, "words is [], expected 1 word for first_word."),
        ({"kind": "sum", "words": ["7", "2"]}, "words is ['7', '2'], expected 2 words for sum, of numbers."),
        ({"kind": "max_words", "number": None}, "number is None, expected at least 1 for max_words."),
        ({"number": "8"}, "number is '8', expected a whole number."),
    ],
)
def test_an_own_row_that_its_check_cannot_read_is_refused_when_it_is_loaded(changed, message, tmp_path):
    with pytest.raises(ValueError) as caught:
        load_prompts("instructions", path=write_file(tmp_path / "own.jsonl", [OWN | changed]))
    assert "row 0 (the first is 0) of instructions in " in str(caught.value)
    assert message in str(caught.value)
