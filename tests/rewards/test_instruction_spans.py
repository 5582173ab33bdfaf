"""The place of an instruction's reward is the characters that decided it, in the text with its special tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards import instruction_reward
from tempo_trl.rewards.instruction_checks import CHECKS
from tempo_trl.rewards.instruction_spans import instruction_spans

END = "<|im_end|>"
ASKED = "Write."
# Kind, words, number, the answer with its place in [ ] (none without brackets), and its reward.
CASES = [
    ("first_word", ["today"], 0, "[Today] the rain is loud.", 1.0),
    ("first_word", ["today"], 0, "[Here] the rain is loud.", 0.0),
    ("last_word", ["river"], 0, "We all went to the [river.<|im_end|>]", 1.0),
    ("last_word", ["river"], 0, "We all went to the [sea", 0.0),  # cut off: to the end of the text
    ("two_words", ["lamp", "bridge"], 0, "The bridge has a [lamp] on it.", 1.0),
    ("two_words", ["lamp", "bridge"], 0, "The bridge is dark and old.", 0.0),
    ("three_words", ["a", "b", "c"], 0, "The c and the b are an [a].", 1.0),
    ("no_comma", [], 0, "It is a loud day.", 1.0),
    ("no_comma", [], 0, "It is[,] in fact, a day.", 0.0),
    ("no_letter", ["w"], 0, "The rain is loud and cold.", 1.0),
    ("no_letter", ["w"], 0, "It is the [W]et day.", 0.0),
    ("sentences", [], 2, "The day is loud. It rains.[<|im_end|>]", 1.0),
    ("sentences", [], 1, "The day is very loud. [I]t rains.", 0.0),
    ("sentences", [], 2, "The day is very loud.[<|im_end|>]", 0.0),
    ("max_words", [], 5, "It is a loud day.[<|im_end|>]", 1.0),
    ("max_words", [], 3, "It is a [l]oud day.", 0.0),
    ("sum", ["four", "three"], 0, "The four and the three are [seven].", 1.0),
    ("sum", ["four", "three"], 0, "The four and the three are [eight].", 0.0),
    ("word_no_comma", ["lamp"], 0, "It is the loud [lamp].", 1.0),
    ("word_no_comma", ["lamp"], 0, "It is the loud lamp[,] in fact.", 0.0),
    ("word_no_comma", ["lamp"], 0, "It is the loud day.", 0.0),
    ("first_word", ["today"], 0, "Today.", 0.0),  # it follows its instruction and is not prose
]


def graded(text, answer, kind, words, number):
    [[criterion]] = instruction_spans([text], [answer], [kind], [words], [number], [ASKED])
    return criterion


@pytest.mark.parametrize(("kind", "words", "number", "marked", "reward"), CASES)
def test_the_place_is_what_decided(kind, words, number, marked, reward):
    plain = marked.replace("[", "").replace("]", "")
    cut_off = marked.endswith("[sea")
    text = plain if cut_off or END in plain else plain + END
    start = marked.find("[") if "[" in marked else None
    end = None if start is None else len(text) if cut_off else marked.index("]") - 1
    assert graded(text, text.replace(END, ""), kind, words, number) == (kind, reward, start, end)


def test_every_kind_has_an_answer_of_both_sorts():
    assert {case[0] for case in CASES if case[-1]} == set(CHECKS)
    assert {case[0] for case in CASES if not case[-1]} == set(CHECKS) - {"three_words"}  # checked as two_words


def test_places_follow_the_thinking_and_an_unfinished_thought_has_none():
    thought = "<think>Here, or so.</think>\n"  # 28 characters: the answer begins at 28
    said = "It is a day, or so."
    criterion = graded(thought + said + END, thought + said, "no_comma", [], 0)
    assert criterion == ("no_comma", 0.0, 28 + 11, 28 + 12)
    assert (thought + said)[criterion.start : criterion.end] == ","
    open_thought = "<think>It is a day, or so."
    assert graded(open_thought + END, open_thought, "no_comma", [], 0) == ("no_comma", 0.0, None, None)


def test_an_answer_that_is_not_in_the_text_has_no_place():
    assert graded("Other text, here.", "It is a day, or so.", "no_comma", [], 0) == ("no_comma", 0.0, None, None)


def test_messages_and_metrics_are_those_of_the_reward():
    logged = {}
    messages = [[{"role": "assistant", "content": "It is a day, or so."}]]
    rows = {"kind": ["no_comma"], "words": [[]], "number": [0], "prompts": [ASKED]}
    instruction_spans(["It is a day, or so." + END], messages, log_metric=logged.__setitem__, **rows)
    assert logged == {"instructions/prose": 1.0, "instructions/no_comma": 0.0}


ANSWERS = st.text(max_size=60) | st.text(alphabet="abW ,.!w'\"\nİ", max_size=40)


@given(ANSWERS, st.sampled_from(sorted(CHECKS)), st.sampled_from(["", END, "<pad>" * 3]))
def test_any_answer_earns_the_plain_reward_at_a_place_of_its_text(answer, kind, special):
    words = ["one", "two"] if kind == "sum" else ["a", "b", "w"]
    criterion = graded(answer + special, answer, kind, words, 2)
    assert [criterion.reward] == instruction_reward([answer], [kind], [words], [2], [ASKED])
    assert criterion.start is None or 0 <= criterion.start < criterion.end <= len(answer + special)
