"""Equations are checked by exact arithmetic, each at its result, and the final answer at its own place."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.equation_reading import equations_of, value_of
from tempo_trl.rewards.equations import equations
from tempo_trl.trainers.span_rewards import checked_spans

END = "<|im_end|>"
TEXT = f"4 + 3 = 7\n7 * 2 = 15\nThe answer is 15.{END}"


def judged(text, answer=None, completions=None, **options):
    """Criteria of one completion as (reward, characters) by name, where each name stands once."""
    [spans] = checked_spans(equations([text], completions, answer=[answer], **options), [text], "equations")
    assert len({span.name for span in spans}) == len(spans)
    return {s.name: (s.reward, None if s.start is None else text[s.start : s.end]) for s in spans}


def test_each_line_is_decided_by_its_result_and_goes_on_by_its_operands():
    [spans] = equations([TEXT], answer=[14], chain=True)
    assert spans == [
        ("line 1", 1.0, 8, 9),
        ("line 2", 0.0, 18, 20),
        ("line 2 continues", 1.0, 10, 11),
        ("answer", 0.0, 35, 37),
    ]
    assert [TEXT[span.start : span.end] for span in spans] == ["7", "15", "7", "15"]


def test_a_line_that_does_not_go_on_is_decided_by_all_operands():
    found = judged("4 + 3 = 7\n 8 * 2 + 1 = 17", 17, chain=True)
    assert found["line 2 continues"] == (0.0, "8 * 2 + 1")
    assert found["line 2"] == (1.0, "17")


def test_whether_a_line_goes_on_is_not_known_behind_an_equation_that_is_not_read():
    found = judged("3 + 4 = 7\n(7 + 1) * 2 = 16\n16 + 4 = 20", chain=True)
    assert found["line 2"] == (1.0, "20")
    assert found["line 2 continues"] == (None, "16 + 4")


def test_a_line_goes_on_from_a_wrong_result_too():
    assert judged("4 + 3 = 8\n2 * 8 = 16", chain=True)["line 2 continues"] == (1.0, "8")


# A sign is no bullet, and a result may have 30 digits.
READ = [("12 + 3 x 4 = 24", True), ("1 - 0.9 = 0.1", True), ("10 / 3 = 3.33", False), ("5 / 0 = 0", False)]
READ += [("3 − 5 = −2", True), ("3 - -2 = 5", True), ("3 + (-2) = 1", True), ("$1,200 + $34.50 = $1,234.50", True)]
READ += [(r"\(3 \times 4 = \boxed{12}\)", True), (r"6 \div 3 = 2", True), ("6 ÷ 3 = 2", True), ("3x4=12", True)]
READ += [("- 3 + 4 = 7", True), ("So **3 + 4 = 7**.", True), ("Total = 3 + 4 = 7 apples.", True)]
READ += [("apples (3 + 4 = 7)", True), (r"1\,800 + 200 = 2\,000", True), ("5 - 8 = - 3", True), ("- 3 + 5 = 2", True)]
READ += [("She has 5 boxes, so 5 * 3 = 15", True), (r"3 + 4 = 7\text{ m}", True)]
READ += [("**Step 1:** 3 + 4 = 7", True), ("1. **Sum:** 3 + 4 = 7", True), ("*Step:* 3 + 4 = 8", False)]
READ += [("a) 3 + 4 = 7", True), ("Total (in dollars) 3 + 4 = 7", True)]
READ += [("9" * 30 + " + 1 = 1" + "0" * 30, None)]
NOT_READ = """
2x -3 = 7; a3 + 4 = 7; 3 + 4 = 7x; 3 + 4 == 7; x = 7; 7 = 7; (3 + 4) * 2 = 14; 2 ** 3 + 1 = 9; n * 3 + 1 = 4
2 + 2 = 1 + 3; 3 + 4 = 7 + 2 = 9; 3 + 4 = 2^3; 50 * 20% = 10; 5 - 3 = 20%; 1e9999999 + 1 = 2; 1 + 1 = 2e99
1,2345 + 1 = 3; 3 + 4 = ?
10 – 3 + 2 = 9; 3 ⋅ 4 + 1 = 13; √16 + 3 = 7; sqrt(16) + 3 = 7; x_1 + 2 = 5; 7 % 4 + 1 = 4; 7 mod 4 + 1 = 4
9 - 1 = 2³; 11 / 2 = 5½; 11 / 2 = 5 1/2; 10:30 + 1 = 31; 1/2 of 10 + 2 = 7; 3 times 4 + 2 = 14; 10 + 1 = 11:30
3 + 4 = 7\\sqrt2; \\frac{1}{2} + 1 = 2; 3 + 4 = 7\\pi; 1 + 1 = 2\\,00; 1 + 1 = 2’000; 500 + 500 = 1 000; = = = 1
"""
NOT_READ = [line for row in NOT_READ.strip().splitlines() for line in row.split("; ")]
NOT_READ += ["3 + 4\n= 7", "1" * 31 + " + 1 = 2", "1 + " * 10 + "1 = 11", "1 +" + " " * 200 + "1 = 2"]


@pytest.mark.parametrize(("line", "right"), READ)
def test_an_equation_is_right_or_wrong_by_exact_arithmetic(line, right):
    found = [value_of(equation) == equation.result.value for equation in equations_of(line)]
    assert found == ([] if right is None else [right])


NOT_READ += ["2 * 15 = 3 * x", "18 + 12 = 2 + x", "18 + 12 = 3(x + 1)", r"18 + 12 = 3 \cdot x", "3 + 4 = 7 - x"]
NOT_READ += ["10 * 6 = 40 dollars + 20 dollars"]


@pytest.mark.parametrize("line", NOT_READ)
def test_what_is_more_than_numbers_and_operators_is_no_equation(line):
    assert [*equations_of(line)] == []


def test_missing_lines_are_wrong_in_what_follows_the_last_one_and_further_ones_are_not_judged():
    found = judged(TEXT, 15, lines=3, chain=True)
    rest = "\nThe answer is 15." + END
    assert found["line 3"] == found["line 3 continues"] == (0.0, rest)
    assert set(judged(TEXT, 15, lines=1)) == {"line 1", "answer"}
    assert judged("Seven." + END, 7, lines=1) == {"line 1": (0.0, "Seven." + END), "answer": (0.0, None)}
    assert judged(END, 7, lines=1) == {"line 1": (0.0, None), "answer": (0.0, None)}


def test_with_lines_all_completions_have_the_same_criteria():
    names = {"line 1", "line 2", "line 2 continues", "answer"}
    assert all(
        set(judged(text, 7, lines=2, chain=True)) == names for text in (TEXT, "", "1 + 1 = 2", "<think>1 + 1 = 2")
    )


ANSWERS = [("The answer is 1,400 apples.", "1,400", "1400", 1.0), ("The answer is -0.5", "-0.5", "-1/2", 1.0)]
ANSWERS += [("It is 1/2.", "1/2", 0.5, 1.0), ("It is 1/0.", "1/0", 0.5, 0.0), ("It is 50%.", "50", 0.5, 1.0)]
ANSWERS += [("It is -5 1/2.", "-5 1/2", 0.5, 0.0), ("It is 1 000.", "1 000", 1000, 1.0)]
ANSWERS += [(r"It is $\frac{1}{3}$.", r"$\frac{1}{3}", "1/3", 1.0), ("The answer is 15%.", "15", 0.15, 1.0)]
ANSWERS += [("The answer is 15%.", "15", 15, 1.0), (r"It is 9{,}500.", r"9{,}500", 9500, 1.0)]
ANSWERS += [(r"It is 1\,800.", r"1\,800", 1800, 1.0), (r"It is 1\,800.", r"1\,800", 800, 0.0)]
ANSWERS += [("It is - 3.", "- 3", -3, 1.0), ("- 3", "- 3", 3, 1.0), ("COVID-19", "19", -19, 0.0)]
ANSWERS += [("Cost - $15", "- $15", 15, 1.0), ("+ 3", "+ 3", -3, 0.0), ("20 - 15", "- 15", 15, 0.0)]
ANSWERS += [("At 10:30.", "30", 30, 0.0), (r"In 3 steps, 7\sqrt2", "7", 7, 0.0)]
ANSWERS += [("It is 5 x 10^3.", "5 x 10^3", 5000, 1.0), (r"\boxed{14} in 3 steps", "14", 14.0, 1.0)]
ANSWERS += [(r"\boxed{}", "}", 14, 0.0), ("14 or 15, see x2", "15", 14, 0.0), ("None.", None, 14, 0.0)]
ANSWERS += [("It is 0.5%.", "0.5", "50%", 0.0), ("It is 5000%.", "5000", "50%", 0.0), ("It is 50%.", "50", "50%", 1.0)]
ANSWERS += [("So 20. It is 3pm", "3", 20, 0.0), ("It is 7: 1e3", "1", 7, 0.0), ("14, on the 15th", "15", 14, 0.0)]
ANSWERS += [(r"It is \frac34.", r"\frac34", "3/4", 1.0), (r"\boxed{\frac{-3}{4}}", r"\frac{-3}{4}", "-3/4", 1.0)]
ANSWERS += [(r"It is \frac{-3}{4}.", r"\frac{-3}{4}", r"\frac{-3}{4}", 1.0), ("It is €5.", "€5", "£5", 1.0)]
ANSWERS += [(r"\boxed{5€}", "5€", 5, 1.0), (r"\boxed{5€3}", "5€3", 53, 0.0)]
ANSWERS += [(r"\boxed{5}, as \boxed{} asks", "5", Decimal("5"), 1.0)]
ANSWERS += [("It is 6 m, or 42 cm^2.", "42", 42, 1.0), ("It is 64 ft^{3}", "64", 64, 1.0), ("10^6", "6", 6, 0.0)]
ANSWERS += [("It is 15 m/s^2", "15", 15, 1.0), (r"It is $42\text{ cm}^2$", "$42", 42, 1.0), ("5x", "5", 5, 0.0)]
ANSWERS += [("He ran 50km.", "50", 50, 1.0), ("At 60mph.", "60", 60, 1.0), ("10¹²", "10", 10, 0.0)]
ANSWERS += [("14", "14", "so\n#### 14", 1.0), ("14", "14", r"It is \boxed{14}.", 1.0)]


@pytest.mark.parametrize(("text", "place", "gold", "reward"), ANSWERS)
def test_the_final_answer_is_the_last_box_or_the_last_number(text, place, gold, reward):
    assert judged(text + END, gold) == {"answer": (reward, place)}


def test_column_none_judges_no_answer_and_another_column_is_read():
    assert set(judged(TEXT, column=None)) == {"line 1", "line 2"}
    [spans] = equations([TEXT], column="total", total=["15"])
    assert spans[-1] == ("answer", 1.0, 35, 37)


def test_thoughts_are_not_read():
    thought = "<think>1 + 1 = 3</think>"
    assert judged(thought + "2 + 2 = 4", 4) == {"line 1": (1.0, "4"), "answer": (1.0, "4")}
    assert judged("<think>1 + 1 = 3", 3) == {"answer": (0.0, None)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got no column 'answer', only other"),
        (
            {"answer": ["seven"]},
            "row 0 of this call's column 'answer' is 'seven', expected a number or a text with one",
        ),
        ({"answer": ["27 apples"]}, "it is not one number"),
        ({"answer": [7], "lines": 0}, "`lines` is 0, expected 1 to 32"),
    ],
)
def test_errors_say_what_is_expected(options, message):
    with pytest.raises(ValueError, match=message):
        equations([TEXT], **({"other": [1]} | options))


@given(st.lists(st.sampled_from("+-*/"), min_size=1, max_size=9), st.data())
def test_the_value_is_pythons(operators, data):
    numbers = data.draw(st.lists(st.integers(1, 99), min_size=len(operators) + 1, max_size=len(operators) + 1))
    parts = [part for pair in zip(["", *operators], numbers, strict=True) for part in pair]
    exact = "".join(f"Fraction({part})" if isinstance(part, int) else part for part in parts)
    [equation] = equations_of(" ".join(map(str, parts)).strip() + " = 1")
    assert value_of(equation) == eval(exact, {"Fraction": Fraction})


ALPHABET = "0123456789 +-*/=x.,$()%^\n\\{}×÷−a"
MUTATED = st.builds(
    lambda at, cut, new: TEXT[:at] + new + TEXT[at + cut :],
    st.integers(0, len(TEXT)),
    st.integers(0, 5),
    st.text(alphabet=ALPHABET, max_size=4),
)


@given(st.text(max_size=80) | st.text(alphabet=ALPHABET, max_size=80) | MUTATED, st.sampled_from([None, 1, 3]))
def test_any_text_is_judged_with_places_inside_it(text, lines):
    found = judged(text, 15, lines=lines)
    assert {reward for reward, _ in found.values()} <= {0.0, 1.0}


@pytest.mark.parametrize(
    "piece",
    [*ALPHABET, "1+", "1+1=2\n", "1 + 1 = 2, ", "=1", "= ", "1,", r"\boxed{", r"\times", r"\$", "1 x ", "(1)", "1e9"],
)
def test_long_repetitions_end(piece):
    text = (piece * 16000)[:16000]
    for each in (text, text + "=1", "1 + " + text, "1 = " + text):
        assert len(judged(each, 15)) <= 64
