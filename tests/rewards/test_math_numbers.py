r"""Numbers of any size are compared exactly, and only decimals up to the last one that they have."""

import pytest

from .answers import reward


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{30!}{28!}", r"\frac{30!}{29!}"),
        (r"\frac{52!}{47!5!}", r"\frac{52!}{48!4!}"),
        (r"1-\frac{1}{2^{70}}", r"1-\frac{1}{2^{71}}"),
        ("2^{100}+0.5", "2^{100}"),
        (r"\frac{2^{100}-1}{2^{100}}", "10^{-400}"),
        (r"\binom{100}{50}", r"\binom{100}{49}"),
        (r"\frac{x}{10^{20}}", r"\frac{x}{10^{21}}"),
        (r"x = \frac{1}{10^{20}}", r"x = \frac{1}{10^{21}}"),
        (r"\{1, \frac{1}{10^{20}}\}", r"\{1, \frac{1}{10^{21}}\}"),
        (
            r"\begin{pmatrix} 1 \\ \frac{1}{10^{20}} \end{pmatrix}",
            r"\begin{pmatrix} 1 \\ \frac{1}{10^{21}} \end{pmatrix}",
        ),
        ("e^{-50}", "e^{-51}"),
        ("e^{-50}", "0"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}+10^{-20}"),
        ("0", r"\pi \cdot 10^{-20}"),
        ("0", "0.0000001"),
        ("1", "1+10^{-20}i"),
        ("(0.0000672, 1)", "(0.0000674, 1)"),
        (r"\frac13", "0.333334"),
    ],
)
def test_numbers_that_differ_by_little_are_not_equal(gold, answer):
    assert reward(gold, answer) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{30!}{28!}", "870"),
        (r"\frac{52!}{47!5!}", r"\binom{52}{5}"),
        (r"1-\frac{1}{2^{70}}", r"\frac{2^{70}-1}{2^{70}}"),
        ("2^{100}+0.5", r"\frac{2^{101}+1}{2}"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"),
        (r"e^{\pi}", "23.140693"),
        (r"\sin 1", r"\cos(\frac{\pi}{2}-1)"),
        (r"\frac{1}{1+i}", r"\frac{1-i}{2}"),
        ("0.5x", r"\frac{x}{2}"),
        (r"\frac13", "0.333333"),
        ("0", r"\sqrt{3+2\sqrt{2}}-1-\sqrt{2}"),
    ],
)
def test_equal_numbers_in_another_closed_form_are_paid(gold, answer):
    assert reward(gold, answer) == 1.0


@pytest.mark.parametrize(("gold", "answer"), [("x^2+1=0", "x^2+2=0"), ("x=x+1", "x=x+2"), ("3=5", "2=5")])
def test_equations_without_a_solution_are_not_equal_for_that(gold, answer):
    assert reward(gold, answer) == 0.0
    assert reward(gold, gold.replace("=", " = ")) == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "paid"),
    [
        (r"\frac{1}{\sqrt{n}}", r"\sqrt{\frac{1}{n}}", 1.0),
        (r"\sqrt{\frac{a}{b}}", r"\frac{\sqrt{a}}{\sqrt{b}}", 1.0),
        (r"\frac{\sqrt{n}}{n}", r"\frac{1}{\sqrt{n}}", 1.0),
        (r"\ln(ab)", r"\ln a + \ln b", 1.0),
        (r"x^{3/2}", r"x\sqrt{x}", 1.0),
        (r"|x|", r"\sqrt{x^2}", 1.0),
        ("x", r"\sqrt{x^2}", 0.0),
        ("|x|", "x", 0.0),
        (r"\frac{1}{\sqrt{n}}", r"\sqrt{\frac{2}{n}}", 0.0),
        (r"\sqrt{ab}", r"\sqrt{a}+\sqrt{b}", 0.0),
    ],
)
def test_variables_under_a_root_may_be_positive_where_both_formulas_are_real(gold, answer, paid):
    assert reward(gold, answer) == reward(answer, gold) == paid
