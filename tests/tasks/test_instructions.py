"""The task `instructions`: an answer is checked by its text, and prose alone is paid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tasks.instruction_checks import CHECKS, follows
from benchmarks.tasks.instructions import KINDS, TRAINED, generated_rows, instruction_reward

FOLLOWED = [("first_word", ["today"], 0, "Today it rains.")]
FOLLOWED += [("last_word", ["river"], 0, "We all walked to the river.")]
FOLLOWED += [("two_words", ["lamp", "bridge"], 0, "The bridge has a lamp on it.")]
FOLLOWED += [("three_words", ["a", "b", "c"], 0, "The c and the b are an a.")]
FOLLOWED += [("no_comma", [], 0, "It is a loud day."), ("no_letter", ["w"], 0, "The rain is loud and cold.")]
FOLLOWED += [("sentences", [], 2, "The day is loud. It rains."), ("max_words", [], 5, "It is a loud day.")]
FOLLOWED += [("sum", ["four", "three"], 0, "3 + 4 = 7")]
FOLLOWED += [("sum", ["one", "two"], 0, "It is 3 because one plus two is 3.")]
FOLLOWED += [("word_no_comma", ["lamp"], 0, "The lamp is on.")]
IGNORED = [("first_word", ["today"], 0, ""), ("first_word", ["today"], 0, "Here the rain is loud.")]
IGNORED += [("last_word", ["river"], 0, "We all went to the sea.")]
IGNORED += [("two_words", ["lamp", "bridge"], 0, "The bridge has lamps.")]
IGNORED += [("two_words", ["lamp", "bridge"], 0, 'The words "lamp" and "bridge" are nouns.')]
IGNORED += [("three_words", ["a", "b", "c"], 0, "The c is an a."), ("no_comma", [], 0, "It is, in fact, a day.")]
IGNORED += [("no_letter", ["w"], 0, "It is the Wet day."), ("sentences", [], 1, "The day is very loud. It rains.")]
IGNORED += [("sentences", [], 2, "The day is very loud."), ("sentences", [], 1, "")]
IGNORED += [("max_words", [], 3, "It is a loud day.")]
IGNORED += [("sum", ["four", "three"], 0, "The four and the three are eight.")]
IGNORED += [("sum", ["four", "three"], 0, "I like rain.")]
IGNORED += [("word_no_comma", ["lamp"], 0, "It is the loud lamp, in fact.")]
IGNORED += [("word_no_comma", ["lamp"], 0, "It is the loud day.")]


@pytest.mark.parametrize(("expected", "case"), [*((True, c) for c in FOLLOWED), *((False, c) for c in IGNORED)])
def test_an_answer_follows_its_instruction_or_not(expected, case):
    kind, words, number, answer = case
    assert follows(answer, kind, words, number) == expected


@given(st.text(alphabet="ab ,.!w'\"\nİ7", max_size=30), st.sampled_from(sorted(CHECKS)))
def test_any_text_has_a_verdict(answer, kind):
    assert follows(answer, kind, ["one", "two"] if kind == "sum" else ["a", "b"], 2) in (True, False)


RULED = "Write about the first day of work. Do not use any commas."


def test_kinds_come_in_turn_and_one_is_never_trained():
    assert [row["kind"] for row in generated_rows("train", 18)] == [*TRAINED] * 2
    assert [row["kind"] for row in generated_rows("test", 20)] == [*KINDS] * 2
    assert set(KINDS) - set(TRAINED) == {"three_words"}


COMMA, HOLLOW = "The day is full, and it is loud.", "Day."


def said(*texts: str) -> list:
    return [[{"role": "assistant", "content": text}] for text in texts]


def columns(*kinds: str) -> dict:
    return {
        "kind": [*kinds],
        "words": [[] for _ in kinds],
        "number": [20 for _ in kinds],
        "prompts": [[{"role": "user", "content": RULED}] for _ in kinds],
    }


def test_an_answer_is_paid_if_it_follows_its_instruction_in_prose_after_its_thought():
    good = "The first day of work is hard."
    answers = [good, COMMA, HOLLOW, f"<think>{COMMA}</think>\n{good}", f"<think>{good}</think>", f"<think>{good}"]
    assert instruction_reward(said(*answers), **columns(*["no_comma"] * 6)) == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def test_the_rate_of_each_kind_is_logged():
    logged = {}
    rows = columns("no_comma", "no_comma", "max_words")
    instruction_reward(said("It is a day of work.", COMMA, COMMA), log_metric=logged.__setitem__, **rows)
    assert logged == {"instructions/prose": 1.0, "instructions/no_comma": 0.5, "instructions/max_words": 1.0}
