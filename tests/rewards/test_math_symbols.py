r"""Markup, Unicode and ASCII mathematics are read as LaTeX, in golds and answers alike."""

import pytest

from tempo_trl.rewards import math_reward
from tempo_trl.rewards.math_symbols import (
    with_ascii_in_latex,
    with_repeating_decimals,
    with_unicode_in_latex,
    without_markup,
)
from tempo_trl.rewards.math_text import math_text

from .answers import boxed


@pytest.mark.parametrize(
    ("rule", "text", "read"),
    [
        (without_markup, "**$73$**", "73"),
        (without_markup, r"{\color{red}73}", "73"),
        (without_markup, r"\textcolor{red}{\mathbf{73}}", "73"),
        (without_markup, r"5{\rm cm}", r"5\text{ cm}"),
        (without_markup, r"\(73\)", "73"),
        (without_markup, "2**3", "2**3"),
        (without_markup, "a*b*c", "a*b*c"),
        (with_unicode_in_latex, "√(x+1)/2", r"\sqrt{x+1}/2"),
        (with_unicode_in_latex, "2½", r"2\frac{1}{2}"),
        (with_unicode_in_latex, "x²+1", "x^{2}+1"),
        (with_unicode_in_latex, "x⁻¹⁰", "x^{-10}"),
        (with_unicode_in_latex, "x₁", "x_{1}"),
        (with_unicode_in_latex, "(−∞, 3)", r"(-\infty, 3)"),
        (with_unicode_in_latex, "2πr", r"2\pi r"),
        (with_unicode_in_latex, r"5\text{ cm²}", r"5\text{ cm²}"),
        (with_ascii_in_latex, "exp((x+1)/2)-1", "e^{(x+1)/2}-1"),
        (with_ascii_in_latex, "sqrt(sqrt(2)+1)", r"\sqrt{\sqrt{2}+1}"),
        (with_ascii_in_latex, "sqrt2", r"\sqrt{2}"),
        (with_ascii_in_latex, r"\mathrm{e}", "e"),
        (with_ascii_in_latex, "3e-5x", "3e-5x"),
        (with_ascii_in_latex, "3e-5", r"3 \times 10^{-5}"),
        (with_ascii_in_latex, "x >= 2", r"x \ge  2"),
        (with_ascii_in_latex, r"\text{pi}", r"\text{pi}"),
        (with_ascii_in_latex, r"\sin x", r"\sin x"),
        (with_ascii_in_latex, "pin", "pin"),
        (with_ascii_in_latex, "sqrt(2", r"\sqrt(2"),
        (with_repeating_decimals, r"1.2\overline{34}", r"\frac{1222}{990}"),
        (with_repeating_decimals, r"\overline{34}", r"\overline{34}"),
    ],
)
def test_each_rule_reads_its_spelling_and_leaves_what_is_like_it(rule, text, read):
    assert rule(text) == read


EQUAL = [
    ("73", "**73**"),
    ("73", "`73`"),
    (r"\sqrt{2}", "√2"),
    (r"\frac12", "½"),
    ("x^2+1", "x²+1"),
    (r"\infty", "∞"),
    (r"\frac{\pi}{2}", "pi/2"),
    (r"-2\pi", "-2*pi"),
    ("e^{16}-1", "exp(16)-1"),
    (r"1-\frac1{\mathrm{e}}", "1-e^{-1}"),
    (r"0.\overline{3}", r"\frac13"),
    (r"\emptyset", r"\varnothing"),
    (r"\emptyset", "∅"),
    ("73", r"\text{73 clips}"),
    ("73", "73 clips"),
    ("73", r"\color{red}{73}"),
    ("73", r"\textbf{73 clips}"),
    (r"(-\infty,3)", "x<3"),
    ("[2,5)", r"2 \le x < 5"),
    (r"(-\infty,3)\cup(5,\infty)", "x<3 or x>5"),
    (r"(-\infty,3)\cup(5,\infty)", "(-inf,3) U (5,inf)"),
    (r"(-\infty,2)\cup(2,\infty)", r"x \neq 2"),
    (r"\log_2 3", "log_2(3)"),
    (r"\sqrt[3]{2}", "∛2"),
    ("x^2+1", "x**2+1"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_a_right_answer_is_paid_in_either_form_whichever_is_the_gold(one, other):
    assert math_reward([boxed(other), boxed(one)], [one, other]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sqrt{2}", "√3"),
        (r"\frac12", "⅓"),
        ("73", "**37**"),
        (r"(-\infty,3)", r"x \le 3"),
        (r"(-\infty,3)", "x>3"),
        (r"(-\infty,3)\cup(5,\infty)", "x<3 and x>5"),
        (r"0.\overline{3}", "0.3"),
        (r"0.\overline{12}", r"0.1\overline{2}"),
        ("e^{16}-1", "exp(16)+1"),
        ("73", r"\text{37 clips}"),
    ],
)
def test_another_answer_is_not_paid_in_these_forms(gold, answer):
    assert math_reward([boxed(answer)], [gold]) == [0.0]


@pytest.mark.parametrize("text", [text for pair in EQUAL for text in pair])
def test_reading_twice_changes_nothing(text):
    assert math_text(math_text(text)) == math_text(text)
