r"""The reward of a multiple-choice answer: what is paid, what is not, and what TRL and its user get to see."""

import pytest

from tempo_trl.rewards import choice_reward
from tempo_trl.rewards.choice_reward import chosen_letter

from .answers import DRUGS, boxed

OPTIONS = DRUGS[:4]


def rewards_of(completions, letter="B", options=OPTIONS, **columns):
    return choice_reward(completions, [letter] * len(completions), [options] * len(completions), **columns)


def test_the_golds_letter_is_paid_and_no_other():
    completions = [boxed(letter) for letter in "ABCDEF"]
    for letter in "ABCD":
        assert rewards_of(completions, letter) == [float(other == letter) for other in "ABCDEF"]


@pytest.mark.parametrize("gold", ["B", boxed("B"), " B ", rf"So it is {boxed('B')}."])
def test_a_gold_is_a_letter_bare_or_in_a_box(gold):
    assert rewards_of([boxed("B"), boxed("A")], gold) == [1.0, 0.0]


def test_a_row_without_options_or_without_a_gold_is_not_rewarded():
    completions, options = [boxed("5"), boxed("B"), boxed("B"), boxed("B")], [None, [], OPTIONS, OPTIONS]
    assert choice_reward(completions, ["5", "B", "", None], options) == [None] * 4


@pytest.mark.parametrize("gold", ["Digoxin", "E", "b", "AB", "1", 1])
def test_a_gold_that_is_no_letter_of_the_row_is_not_rewarded(gold):
    assert rewards_of([boxed("B"), boxed(gold)], gold) == [None, None]


def test_the_share_without_an_answer_is_logged_over_the_rows_that_have_options():
    metrics = {}
    completions = [boxed("B"), boxed("A"), "B or not", boxed("A, B"), boxed("5"), "nothing"]
    options = [OPTIONS] * 4 + [None, []]
    columns = {"prompts": ["?"] * 6, "completion_ids": [[1]] * 6, "trainer_state": None, "log_extra": None}
    rewards = choice_reward(
        completions, ["B"] * 6, options, log_metric=metrics.__setitem__, source=["x"] * 6, **columns
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0, None, None]
    assert metrics == {"choice/no_answer": 0.5}


def test_the_nulls_that_datasets_fills_in_are_no_options_and_other_values_are_refused():
    with_null = {"A": "red", "B": "green", "C": None}
    assert choice_reward([boxed("B"), boxed("C")], ["B", "C"], [with_null, [*with_null.values()]]) == [1.0, None]
    for wrong in ([1, 2], ["red", None, "blue"]):
        with pytest.raises(ValueError, match="`options` must be texts, got"):
            rewards_of([boxed("A")], options=wrong)


def test_options_may_go_by_their_letters():
    by_letter = dict(zip("ABCD", OPTIONS, strict=True))
    assert rewards_of([f"Answer: {OPTIONS[1]}", boxed("A")], "B", by_letter) == [1.0, 0.0]
    with pytest.raises(ValueError, match="`options` go by 'b', 'a', expected a list, or the letters A, B"):
        rewards_of([boxed("B")], "B", {"b": "yes", "a": "no"})


# One answer

ANSWERS = ["B", "(B)", "[B]", "B.", "B)", "B:", " B ", "$B$", r"\text{B}", r"\textbf{(B)}", r"\mathrm{B}", "**B**"]
ANSWERS += ["B. Digoxin", "(B) Digoxin", "B: Digoxin", r"\text{(B) Digoxin}", "Digoxin", r"\text{Digoxin.}"]
PLACES = [r"So it is $\boxed{{{}}}$.", "<answer>{}</answer>", "A is wrong.\n\nAnswer: {}", "**Final answer:** {}"]


@pytest.mark.parametrize("place", PLACES)
def test_a_letter_the_exact_text_or_both_name_an_option(place):
    said = [place.format(answer) for answer in ANSWERS]
    assert [each for each in said if chosen_letter(each, DRUGS) != "B"] == []


NONE = "A, B; A and B; AB; A B; not B; B, not D; B because; b; F; B. Warfarin; Digoxin (A); Digox; Digoxin 5 mg"
NONE += "; digoxin; A 45-year-old man; hepatitis B; B-cell lymphoma; B12; ; 5; A. Propranolol, B. Digoxin"
NONE += r"; Digoxin or Warfarin; \frac{A}{B}; \neg B"


@pytest.mark.parametrize("place", PLACES)
def test_anything_else_in_its_place_names_none(place):
    said = [place.format(answer) for answer in NONE.split("; ")]
    assert [each for each in said if chosen_letter(each, DRUGS) != ""] == []


SAID = [(r"\boxed{A} or \boxed{B}", "", "B"), (r"\boxed{B}, that is \boxed{Digoxin}", "B", "B")]
SAID += [("<answer>A</answer> <answer>B</answer>", "", "B"), (r"<answer>A</answer> \boxed{B}", "B", "B")]
SAID += [("Answer: A\nAnswer: B", "B", "B"), ("Answer: B\nI am sure.", "", ""), (r"<think>\boxed{B}", "", "")]
SAID += [(r"<think>\boxed{A}</think> Answer: B", "B", "B"), (r"\boxed{B} <think> but", "", "")]


@pytest.mark.parametrize(("completion", "all_boxes", "last_box"), SAID)
def test_a_box_comes_before_a_tag_and_a_tag_before_a_last_line(completion, all_boxes, last_box):
    assert chosen_letter(completion, DRUGS) == all_boxes
    assert chosen_letter(completion, DRUGS, "last") == last_box


def test_signs_in_the_text_of_an_option_change_nothing():
    options = ["37° C", "5% dextrose", "$x^2$", r"\frac12"]
    assert [chosen_letter(rf"\boxed{{\text{{{text}}}}}", options) for text in options[:2]] == ["A", "B"]
    assert [chosen_letter(boxed(text), options) for text in options] == list("ABCD")


def test_the_text_of_an_option_that_is_there_twice_names_none_and_a_letter_is_a_letter_first():
    assert chosen_letter(boxed("yes"), ["yes", "yes", "no"]) == ""
    assert chosen_letter(boxed("B"), ["B", "A"]) == "B"


def test_a_last_line_is_read_in_linear_time():
    assert chosen_letter(f"Answer: B{' *' * 200_000}", DRUGS) == "B"
    assert chosen_letter(f"Answer: B{' ' * 200_000}.", DRUGS) == "B"


def test_long_repetitions_end():
    for text in ("<answer>" * 12_000, "\\boxed{" * 12_000, "Answer:" * 14_000, "(" * 100_000, "\n" * 100_000):
        assert chosen_letter(text, DRUGS) == chosen_letter(boxed(text), DRUGS) == ""


# Real rows
