r"""Fractions, mixed numbers and metres in the box of an answer to a rounded float, and two numbers in one box."""

from fractions import Fraction

import pytest

from tempo_trl.rewards.plain_number import number_readings

from .answers import is_paid

THIRD, SEVEN_AND_A_THIRD = "0.3333333333333333", "7.333333333333333"


@pytest.mark.parametrize(
    "answer",
    [r"\frac13", r"\dfrac13", r"\tfrac 1 3", r"\frac{1}3", r"\frac1{3}", "(1/3)", r"\left(\frac13\right)", "33 1/3%"],
)
def test_a_fraction_of_bare_digits_or_in_parentheses_is_a_number(answer):
    assert is_paid(THIRD, answer)


@pytest.mark.parametrize("answer", ["7 1/3", "(7 1/3)", r"7\frac13", r"7 \dfrac 13", "7 1/3 m", "x = 7 1/3"])
def test_a_whole_before_a_fraction_is_a_mixed_number(answer):
    assert is_paid(SEVEN_AND_A_THIRD, answer)
    assert not is_paid(f"-{SEVEN_AND_A_THIRD}", answer)


@pytest.mark.parametrize("answer", ["1{,}234 1/3", "1 234 1/3", "1234 1/3", "(1{,}234.3333)", r"1{,}234\frac13"])
def test_the_whole_of_a_mixed_number_may_have_thousands(answer):
    assert is_paid("1234.3333333333333", answer)


def test_three_digits_before_a_slash_are_thousands_rather_than_a_mixed_number():
    assert number_readings("7 003/4") == (Fraction(7003, 4),)


@pytest.mark.parametrize("answer", ["7.33m", "7.33 m", "7.33 m^2", "7.33 cm^{2}", "7.33 m²", r"\text{7.33 m}"])
def test_metres_and_their_powers_are_a_unit(answer):
    assert is_paid(SEVEN_AND_A_THIRD, answer)


@pytest.mark.parametrize("answer", [r"\frac31", r"\dfrac{3}1", r"\frac132", r"2\frac13", "1 1/3", "(3)", "(1/3)^2"])
def test_another_fraction_is_not_paid(answer):
    assert not is_paid(THIRD, answer)


@pytest.mark.parametrize(
    "answer",
    ["7 1/4", "-7 1/3", "71/3", "7 1/3/4", "7.0 1/3", "7.33x", "7.33 xy^2", r"\$7.33m", "7.33M", "7.33m8", "7.5 m^2"],
)
def test_another_mixed_number_a_variable_and_millions_are_not_paid(answer):
    assert not is_paid(SEVEN_AND_A_THIRD, answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("(1/3, 2)", "(2, 1/3)", "(0,1/3)", "(1/3)(2)", "1/3, 2", "(1/3) or (1/4)", "0 1/3", "1/3 1/3", r"\frac13 2"),
        *(r"\frac13\frac13", "0.3333m 2", r"\text{0.3333 m or 0.5 m}", "((1/3)", "(1/3", "()"),
    ],
)
def test_two_numbers_in_a_box_are_no_number_although_one_is_right(answer):
    assert number_readings(answer) == ()
    assert not is_paid(THIRD, answer)


@pytest.mark.parametrize(("gold", "answer"), [("1234.0", "(1,234)"), ("5.0", "5 xy^2"), ("5.0", "5 pi")])
def test_a_pair_a_product_and_a_multiple_of_pi_are_not_the_whole_number_in_them(gold, answer):
    assert number_readings(answer) == ()
    assert not is_paid(gold, answer)
