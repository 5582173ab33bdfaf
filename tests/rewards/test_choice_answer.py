r"""Which option a statement names: by letter, by text, by both if they agree; and what names none."""

import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.choice_answer import chosen_letter

from .answers import DRUGS, boxed

FONTS = ["{}", r"\text{{{}}}", r"\textbf{{{}}}", r"\mathrm{{{}}}", r"\underline{{{}}}", r"\boxed{{{}}}", "{{{}}}"]
NAMES = ["B", "(B)", "[B]", "B.", "B)", " B ", "$B$", "**B**", "b", "(b)", "Option B", "Answer: B", "The answer is B"]
NAMES += ["Digoxin"]
NONE = ["A, B", "A and B", r"A \text{ or } B", "A/B", "AB", "A-B", "A B", "(A)(B)", "not B", r"\neg B", "B?"]
NONE += ["A) Propranolol, B) Digoxin", "A. Propranolol and B. Digoxin", "Digoxin or Warfarin"]


def test_a_box_holds_one_letter_or_option_in_any_font():
    said = [boxed(font.format(name)) for font, name in product(FONTS, NAMES)]
    assert [each for each in said if chosen_letter(each, DRUGS) != "B"] == []
    said = [boxed(font.format(name)) for font, name in product(FONTS, NONE)]
    assert [each for each in said if chosen_letter(each, DRUGS) != ""] == []


@pytest.mark.parametrize(
    "form", [r"\boxed{{{}}}", r"$\boxed{{\text{{{}}}}}$", "<answer>{}</answer>", "The answer is {}"]
)
@pytest.mark.parametrize(
    "mark", ["B. {}", "B) {}", "B: {}", "B - {}", "B — {}", "B {}", "B ({})", "Option B: {}, a drug"]
)
def test_a_letter_counts_with_its_own_text_and_not_with_another(form, mark):
    texts = ("Digoxin", "digoxin", "Warfarin", "warfarin")
    assert [chosen_letter(form.format(mark.format(text)), DRUGS) for text in texts] == ["B", "B", "", ""]


@pytest.mark.parametrize(
    "completion, letter",
    [
        (r"\boxed{\text{digoxin.}}", "B"),
        (r"\boxed{\text{(B) Digoxin}}", "B"),
        (r"\boxed{\textbf{B}.~\text{Digoxin}}", "B"),
        (r"\boxed{Option B: Digoxin, a cardiac glycoside}", "B"),
        (r"\boxed{Digoxin (B)}", "B"),
        ("The answer is Digoxin (B).", "B"),
        ("The answer is **digoxin** (option B), because it slows the heart.", "B"),
        ("The answer is Digoxin (A).", ""),
        (r"\boxed{Digoxin (A)}", ""),
        (r"\boxed{Digoxin (B), C}", ""),
        (r"\boxed{Digoxin 5 mg}", ""),
        (r"\boxed{Digoxine}", ""),
        (r"\boxed{Digox}", ""),
        (r"\boxed{a cardiac glycoside}", ""),
    ],
)
def test_an_options_text_counts_if_it_is_exact_and_agrees_with_the_letter(completion, letter):
    assert chosen_letter(completion, DRUGS) == letter


@pytest.mark.parametrize(
    "completion",
    [
        r"\boxed{A} or \boxed{B}",
        r"$\boxed{A}$, $\boxed{B}$",
        r"\boxed{A}\boxed{B}",
        r"\boxed{A \boxed{B}}",
        r"The answer is not \boxed{B}.",
        r"It isn't $\boxed{B}$.",
    ],
)
def test_two_letters_or_a_negated_one_are_no_answer(completion):
    assert chosen_letter(completion, DRUGS) == ""


def test_b_not_d_is_b():
    for completion in (r"\boxed{B, not D}", r"\boxed{\text{B (not D)}}", r"\boxed{B and not A, C or D}"):
        assert chosen_letter(completion, DRUGS) == "B"


@pytest.mark.parametrize(
    "completion",
    [
        r"\boxed{A 45-year-old}",
        r"\boxed{\text{A 45-year-old man}}",
        "The answer is A 45-year-old man.",
        r"\boxed{hepatitis B}",
        "The answer is hepatitis B.",
        r"\boxed{vitamin D}",
        "The answer is vitamin D deficiency.",
        r"\boxed{E. coli}",
        "The answer is E. coli.",
        "The answer is C. difficile colitis.",
        r"\boxed{C-peptide}",
        r"\boxed{B-cell lymphoma}",
        r"\boxed{B cells}",
        r"\boxed{D5W}",
        r"\boxed{B12}",
        r"\boxed{B_{12}}",
        r"\boxed{A1c}",
        r"\boxed{B^{+}}",
        r"\boxed{A's}",
        r"\boxed{\text{}}",
        r"\boxed{None}",
        r"\boxed{\frac{A}{B}}",
        r"\boxed{B",
        "The answer is \\boxed{B",
        r"boxed{B}",
        "\\boxed{B\x00}",
        r"\boxed{__import__('os')}",
        r"\boxed{[A-E]}",
        r"\boxed{(?P<letter>B)}",
        "\\boxed{\ud800}",
        r"\boxed{<answer>B</answer>}",
    ],
)
def test_what_only_looks_like_a_letter_is_no_answer(completion):
    assert chosen_letter(completion, DRUGS) == ""


@pytest.mark.parametrize(
    "options, completion, letter",
    [
        # A capital is a letter, even if it is an option's text.
        (["B", "A", "AB", "O"], r"\boxed{A}", "A"),
        (["B", "A", "AB", "O"], r"\boxed{AB}", "C"),
        (["B", "A", "AB", "O"], r"\boxed{O}", "D"),
        (["B", "A", "AB", "O"], r"\boxed{A. B}", "A"),
        (["B", "A", "AB", "O"], r"\boxed{B. B}", ""),
        (["ac", "a", "ad", "ab"], r"\boxed{a}", ""),
        (["ac", "a", "ad", "ab"], r"\boxed{ad}", "C"),
        (["XII", "IX", "V", "X"], r"\boxed{V}", "C"),
        (["7", "9", "11", "13"], r"\boxed{9}", "B"),
        (["1%", "10%", "25%", "100%"], r"\boxed{10\%}", "B"),
        (["1%", "10%", "25%", "100%"], r"\boxed{10}", ""),
        (["-5", "5", "0.5", "5.5"], r"\boxed{5}", "B"),
        (["-5", "5", "0.5", "5.5"], "The answer is 5.5.", "D"),
        (["-5", "5", "0.5", "5.5"], "The answer is 0.5.", "C"),
        (["A", "B", "C", "D"], r"\boxed{B}", "B"),
        (["A. Yes", "B. No"], r"\boxed{B. No}", "B"),
        (["A. Yes", "B. No"], r"\boxed{B. B. No}", "B"),
        (["B>A>D>C", "B>D>C>A"], r"\boxed{B>D>C>A}", "B"),
        # The longest option that fits is meant.
        (["Hepatitis", "Hepatitis B"], r"\boxed{Hepatitis B}", "B"),
        (["Hepatitis", "Hepatitis B"], "The answer is hepatitis B.", "B"),
        (["Hepatitis", "Hepatitis B"], "The answer is A. Hepatitis B.", ""),
        (["Hepatitis", "Hepatitis B"], "The answer is hepatitis C.", ""),
        (["Aspirin", "Aspirin and heparin"], "The answer is aspirin and heparin.", "B"),
        (["Aspirin", "Aspirin and heparin"], "The answer is aspirin, then heparin.", ""),
        (["Vitamin A", "Vitamin B", "Vitamin D"], r"\boxed{\text{Vitamin D}}", "C"),
        (["Vitamin A", "Vitamin B", "Vitamin D"], r"\boxed{B. Vitamin B}", "B"),
        (["Vitamin A", "Vitamin B", "Vitamin D"], r"\boxed{B. Vitamin D}", ""),
        (["A 45-year-old man", "A 30-year-old man"], r"\boxed{A 30-year-old man}", "B"),
        (["A 45-year-old man", "A 30-year-old man"], "The answer is A 30-year-old man.", "B"),
        (["A 45-year-old man", "A 30-year-old man"], "The answer is A. A 45-year-old man.", "A"),
        (["E. coli", "S. aureus", "K. oxytoca", "P. mirabilis", "None"], r"\boxed{E. coli}", "A"),
        (["E. coli", "S. aureus", "K. oxytoca", "P. mirabilis", "None"], "The answer is E. coli.", "A"),
        (["E. coli", "S. aureus", "K. oxytoca", "P. mirabilis", "None"], r"\boxed{E. None}", "E"),
        (["Escherichia coli", "S. aureus", "K. oxytoca", "P. mirabilis", "None"], "The answer is E. Coli.", ""),
        (["Digoxin 0.25 mg", "Warfarin 5 mg"], "The answer is B. Digoxin.", ""),
        (["Both A and B", "A and B", "All", "None"], r"\boxed{A and B}", "B"),
        (["Yes", "Yes"], r"\boxed{Yes}", ""),
        (["Yes", "Yes"], r"\boxed{B. Yes}", "B"),
        (["Yes", "No"], r"\boxed{C}", ""),
        (["A [x](y) (z", "B.*"], r"\boxed{B.*}", "B"),
        (["", None, "x"], r"\boxed{}", ""),
        (["", None, "x"], r"\boxed{B}", "B"),
        ([], r"\boxed{A}", ""),
    ],
)
def test_letters_and_texts_are_those_of_the_row(options, completion, letter):
    assert chosen_letter(completion, options) == letter


# No raise, no hang


PIECES = [r"\boxed{", "}", "A", "B", "b", " ", ".", ",", "(", ")", "not ", " or ", "answer is ", "Answer: ", "\n", "$"]
PIECES += ["<think>", "</think>", "<answer>", "</answer>", "Digoxin", "Warfarin", r"\text{", "\\", "E. coli", "F"]
PIECES += [" and ", "the answer is ", "*", "answer:", "A.\nB.\n", "A. so\n", "9", "{", "\u202e\U0001d401"]


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("length", [1_900, 100_000])
def test_a_hundred_thousand_characters_cost_less_than_a_second(piece, length):
    started, many = time.process_time(), piece * (length // len(piece))
    assert chosen_letter(f"{many}B C", DRUGS) == ""
    assert chosen_letter(rf"{many}\boxed{{A B}}", DRUGS) == ""
    assert chosen_letter(rf"\boxed{{B{many}C}}", DRUGS) in ("", "B", "C")
    assert time.process_time() - started < 3.0


@pytest.mark.parametrize("opening", [r"\boxed{", r"\boxed{\text{", "{"])
def test_deep_boxes_and_braces_cost_less_than_a_second(opening):
    started, depth = time.process_time(), 50_000 // len(opening)
    assert chosen_letter(opening * depth + "B C" + "}" * (depth * opening.count("{")), DRUGS) == ""
    assert time.process_time() - started < 1.0


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_names_one_of_the_rows_letters_that_it_holds_or_nothing(completion):
    letter = chosen_letter(completion, DRUGS)
    named = {"A": "Aa", "B": "BbD", "C": "C", "D": "DW", "E": "E"}
    assert letter == "" or any(sign in completion for sign in named[letter])


@given(st.text(st.characters(exclude_characters="ABCDEabcde")))
def test_a_text_without_the_letters_names_nothing(completion):
    assert chosen_letter(completion, DRUGS) == chosen_letter(rf"\boxed{{{completion}}}", DRUGS) == ""
