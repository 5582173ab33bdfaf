r"""The rules by which an everyday box becomes what math-verify reads, and the answers that it pays and we refuse."""

import pytest

from tempo_trl.rewards.math_guards import in_another_base
from tempo_trl.rewards.math_text import (
    math_text,
    with_base_in_digits,
    with_imaginary_unit,
    with_joined_thousands,
    with_scale_in_digits,
    without_degrees,
    without_final_stop,
)
from tempo_trl.rewards.math_units import with_temperature_as_text, with_unit_as_text

from .answers import reward


@pytest.mark.parametrize(
    ("rule", "text", "read"),
    [
        (without_final_stop, "(3,4).", "(3,4)"),
        (without_final_stop, r"\text{Evelyn.}", r"\text{Evelyn}"),
        (without_final_stop, "0.333...", "0.333..."),
        (without_final_stop, r"5\,", r"5\,"),
        (without_final_stop, r"\left(1, 2\right.", r"\left(1, 2\right."),
        (without_final_stop, "1.5", "1.5"),
        (without_degrees, r"60 ^ {\circ}", "60"),
        (without_degrees, r"f \circ g", r"f \circ g"),
        (with_joined_thousands, r"12\,345\,678", "12345678"),
        (with_joined_thousands, r"111, \! 111, \! 111", "111111111"),
        (with_joined_thousands, "1{,}800.50", "1800.50"),
        (with_joined_thousands, "(1 800, 5)", "(1800, 5)"),
        (with_joined_thousands, "1,800", "1,800"),
        (with_joined_thousands, "0 500", "0 500"),
        (with_joined_thousands, "12 34", "12 34"),
        (with_joined_thousands, "1 8000", "1 8000"),
        (with_joined_thousands, "1 800 5000", "1 800 5000"),
        (with_joined_thousands, "2 250/400", "2 250/400"),
        (with_joined_thousands, "x^2 300", "x^2 300"),
        (with_imaginary_unit, "1-12i", "1-12 i"),
        (with_imaginary_unit, r"1+2\mathrm{i}", "1+2 i"),
        (with_imaginary_unit, r"2\imath", "2 i"),
        (with_imaginary_unit, "12in", "12in"),
        (with_imaginary_unit, r"\sin 2", r"\sin 2"),
        (with_base_in_digits, "A0_{sixteen}", "A0_{16}"),
        (with_scale_in_digits, r"5\text{ million}", r"5 \times 10^6"),
        (with_scale_in_digits, r"5\text{ million dollars}", r"5 \times 10^6\text{ dollars}"),
        (with_scale_in_digits, r"\frac12~\text{billion}", r"\frac12 \times 10^9"),
        (with_scale_in_digits, r"5\text{ hundred thousand}", r"5 \times 10^2 \times 10^3"),
        (with_scale_in_digits, r"5\text{ thousandths}", r"5\text{ thousandths}"),
        (with_scale_in_digits, r"\text{a million}", r"\text{a million}"),
        (with_unit_as_text, "5 cm^2", r"5\text{ cm}^2"),
        (with_unit_as_text, r"\frac12\,cm²", r"\frac12\text{ cm}^2"),
        (with_unit_as_text, r"\text{5:30 p.m.}", r"5:30\text{ p.m.}"),
        (with_unit_as_text, "60 miles per hour", r"60\text{ miles per hour}"),
        (with_unit_as_text, "3m + 2h", "3m + 2h"),
        (with_unit_as_text, r"2\pi hr", r"2\pi hr"),
        (with_unit_as_text, "5 M", "5 M"),
        (with_unit_as_text, "xm", "xm"),
        (with_temperature_as_text, r"20^{\circ}\text{C}", r"20\text{ C}"),
        (with_temperature_as_text, "20°F", r"20\text{ F}"),
        (with_temperature_as_text, r"20^\circ", r"20^\circ"),
    ],
)
def test_each_rule_reads_its_spelling_and_leaves_what_is_like_it(rule, text, read):
    assert rule(text) == read


def test_reading_twice_changes_nothing():
    for text in ("5.", "60°", r"1\,800", "12i.", r"2112_{\text{six}}", r"\text{Evelyn.}", "5 million cm", "20°C"):
        assert math_text(math_text(text)) == math_text(text)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\text{Evelyn.}", r"\text{Evelyn}"),
        ("1 800", "1800.0"),
        ("3(2+i)", "6+3i"),
        (r"\frac{7}{5} + \frac{1}{5} i", r"\frac{7}{5} + \frac{1}{5} i."),
        ("111111111", r"111, \! 111, \! 111"),
        ("2^{-98}", r"\frac{1}{2^{98}}"),
        ("0.003968", r"\frac{1}{252}"),
        ("0.5", r"50\%"),
    ],
)
def test_a_right_answer_is_paid_in_an_everyday_box(answer, gold):
    assert reward(gold, answer) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"-\frac{1}{2^{98}}", r"\frac{1}{2^{98}}"),
        (r"\{1, \frac{1}{2^{99}}\}", r"\{1, \frac{1}{2^{98}}\}"),
        ("0.0000674", "0.0000672"),
        ("0.00012346", "0.00012345"),
        (r"\frac{8}{5} + \frac{1}{5} i.", r"\frac{7}{5} + \frac{1}{5} i."),
        (r"0.5\%", r"50\%"),
        ("y = 5", "x = 5"),
        ("3", "3 xy"),
    ],
)
def test_a_wrong_answer_that_math_verify_or_a_rule_might_pay_is_not_paid(answer, gold):
    assert reward(gold, answer) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "other"),
    [
        ("2112_6", "2112_7", True),
        ("2112_6", "2112_{6}", False),
        ("2112_6", "2112", False),
        ("1BA_{12}", "1BA_{11}", True),
        (r"\log_2 8", r"\log_3 8", False),
        ("x_1", "x_2", False),
    ],
)
def test_a_base_is_a_subscript_of_digits(gold, answer, other):
    assert in_another_base(gold, answer) is other
