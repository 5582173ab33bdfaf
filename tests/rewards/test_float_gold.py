r"""Golds that are floats: which they are, what equals them, and that MATH's golds are none."""

import math
import re
import sys
import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards import math_reward
from tempo_trl.rewards.boxed import gold_answer
from tempo_trl.rewards.float_gold import float_gold
from tempo_trl.rewards.plain_number import number_readings

from .answers import boxed, is_paid, needs_real_rows, read_rows

# The package exports the function under its module's name.
reward_module = sys.modules["tempo_trl.rewards.math_reward"]


# Which golds are floats


@pytest.mark.parametrize("literal", ["142.0", "-9867630.0", "2.0107e-06", "1e+16", "0.0", "-0.15", " 7.5\n"])
def test_a_float_gold_is_a_bare_literal_as_python_writes_it(literal):
    assert float_gold(literal).value == Fraction(literal)


@pytest.mark.parametrize(
    "text", ["142", "-5", "1,000.5", "5.", ".5", r"\boxed{6.17}", "6.17 cm", "nan", "inf", "1e400", ""]
)
def test_anything_else_is_no_float_gold(text):
    assert float_gold(text) is None


@pytest.mark.parametrize(
    "literal, slack",
    [
        ("142.0", 0),
        ("1173896.6", 0),
        ("0.15", 0),
        ("1e+10", 0),
        ("1234567.3333", Fraction(5, 1000)),
        ("4.7857142857", Fraction("0.0047857142857")),  # a thousandth of it is less than 0.005
        ("-0.0836116517", Fraction("0.0000836116517")),
        ("2.0107e-06", Fraction("2.0107e-09")),
    ],
)
def test_the_tolerance_is_half_a_cent_or_a_thousandth_where_the_literal_is_long(literal, slack):
    assert float_gold(literal).tolerance == slack + Fraction(math.ulp(float(literal))) / 2


def test_above_2_to_the_53_what_rounds_to_the_same_float_is_equal():
    assert is_paid("1.2345678901234567e+19", "12345678901234567890")
    assert not is_paid("1.2345678901234567e+19", "12345678901234600000")
    assert is_paid("9007199254740991.0", "9007199254740991") and not is_paid("9007199254740991.0", "9007199254740990")


# What equals them


@pytest.mark.parametrize(
    "gold, answer",
    [
        ("-9867630.0", "-9,867,630"),
        ("-9867630.0", "\N{MINUS SIGN}9867630"),
        ("-9867630.0", r"\$-9{,}867{,}630"),
        ("-9867630.0", r"x = -9\,867\,630"),
        ("322886700.0", r"322\!,\!886\!,\!700"),
        ("322886700.0", r"322{,}886{,}700 \text{ meters}"),
        ("322886700.0", "322 886 700 meters per week"),
        ("322886700.0", r"\text{322,886,700}"),
        ("322886700.0", "322.8867 million"),
        ("2.0107e-06", r"2.0107\cdot10^{-6}\text{ weeks}"),
        ("2.0107e-06", "2.0107E-6"),
        ("2.0107e-06", "0.0000020107"),
        ("2.0107e-06", "2.01067 \\times 10^{\N{MINUS SIGN}6}"),
        ("2.0107e-06", r"\approx 2.01 \times 10^{-6}"),
        ("2.0107e-06", r"\frac{42}{20888590.8}"),
        ("1234567.3333", r"$1{,}234{,}567.33$"),
        ("1234567.3333", r"\frac{3703702}{3}"),
        ("1234567.3333", r"1234567\frac{1}{3}"),
        ("1234567.3333", r"3{,}703{,}702/3"),
        ("261280.125", "261{,}280.13"),
        ("261280.125", "261{,}280.12"),
        ("55938720.00000001", "55{,}938{,}720"),
        ("4.7857142857", r"\$4.79"),
        ("4.7857142857", r"\dfrac{67}{14}"),
        ("15.0", r"15\%"),
        ("0.15", r"15\%"),
        ("0.15", "15 percent"),
        ("0.0", "-0.0"),
        ("142.0", "142."),
        ("142.0", "m+n=142"),
        ("142.0", r"142^\circ"),  # what is no plain number goes to math-verify
        ("142.0", r"\sqrt{20164}"),
        ("1e+16", r"10^{16}"),
        (142.0, "142"),
        (142, "142.0"),
    ],
)
def test_a_number_is_paid_in_the_forms_that_models_write(gold, answer):
    assert is_paid(gold, answer)


@pytest.mark.parametrize(
    "gold, answer",
    [
        ("-9867630.0", "-9{,}867{,}630.5"),
        ("-9867630.0", "-9.87 million"),
        ("-9867630.0", "--9867630"),
        ("-9867630.0", "-9867630 or 9867630"),
        ("-9867630.0", r"-9{,}867{,}630\text{ or }1"),
        ("2.0107e-06", "0"),
        ("2.0107e-06", "0.000002"),
        ("2.0107e-06", "0.00"),
        ("2.0107e-06", r"2.0107 \times 10^{6}"),
        ("2.0107e-06", "2.0107e"),
        ("1234567.3333", "1{,}234{,}567"),
        ("1234567.3333", "1{,}234{,}567.3"),
        ("1234567.3333", "1{,}234{,}567.34"),
        ("1234567.3333", "1.23e6"),
        ("4.7857142857", "4.8"),
        ("0.0836116517", "0.08"),
        ("0.15", "0.1501"),
        ("0.15", "0.149999"),
        ("5.0", r"5 \text{ million}"),
        ("5.0", "5 hundred"),
        ("5.0", r"x \neq 5"),
        ("5.0", "x > 5"),
        ("5.0", "not 5"),
        ("5.0", "5 or 6"),
        ("5.0", "5/0"),
        ("5.0", "５"),
        ("5.0", "٥"),
        ("5.0", "²⁵⁄₅"),
        ("1000.0", "1,00"),
        ("1000.0", "10,00"),
        ("1234.0", "1,23,4"),
        ("1.4142135624", r"\sqrt{3}"),
        ("142143.0", "142 or 143"),
    ],
)
def test_another_number_is_not_paid(gold, answer):
    assert not is_paid(gold, answer)


def test_the_tolerance_does_not_reach_a_gold_in_a_box():
    assert is_paid("1234567.3333", "1234567.33") and not is_paid(boxed("1234567.3333"), "1234567.33")


@pytest.mark.parametrize(
    "answer", ["1234", "-1{,}234.5", "1 234 567.25", r"\frac{7}{2}", r"7\frac{1}{2}", "7/2", "3e4", "50%"]
)
def test_a_reading_is_exact(answer):
    expected = {r"\frac{7}{2}": "7/2", r"7\frac{1}{2}": "15/2", "50%": "50"}.get(
        answer, re.sub("{?[ ,]}?", "", answer)
    )
    assert number_readings(answer)[0] == Fraction(expected)


# Real rows


FORMS = {
    "as it is": repr,
    "with thousands": lambda number: f"{number:,.10f}".replace(",", "{,}"),
    "in dollars": lambda number: rf"\${number:,.10f}".replace(",", "{,}"),
    "in powers of ten": lambda number: re.sub(r"e(.*)", r" \\times 10^{\1}", f"{Decimal(repr(number)):.15e}"),
    "named": lambda number: rf"x = {number!r}\text{{ units}}" if "e" not in repr(number) else repr(number),
}


def targets():
    return [row["target"] for row in read_rows("gsm_hard")]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@given(number=st.floats(-1e12, 1e12).filter(lambda number: number == 0 or abs(number) > 1e-3))
def test_every_float_is_paid_in_each_form(form, number):
    assert float_gold(repr(number)).equals(number_readings(form(number)))


@needs_real_rows
def test_every_target_of_gsm_hard_is_paid_in_each_form():
    pairs = [(boxed(form(target)), repr(target)) for form in FORMS.values() for target in targets()]
    assert math_reward(*zip(*pairs, strict=True)) == [1.0] * len(pairs)


@needs_real_rows
def test_cents_are_paid_wherever_they_say_enough():
    large = [target for target in targets() if abs(target) >= 5]
    assert len(large) == 281
    echoes = [boxed(f"{target:,.2f}") for target in large]
    assert math_reward(echoes, [repr(target) for target in large]) == [1.0] * len(large)


WRONG = {
    "one more": lambda number: number + 1,
    "one less": lambda number: number - 1,
    "the other sign": lambda number: -number,
    "ten times": lambda number: number * 10,
    "a tenth": lambda number: number / 10,
    "a percent more": lambda number: number * 1.01,
    "a percent less": lambda number: number * 0.99,
}


@needs_real_rows
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_no_target_of_gsm_hard_is_paid_for_a_wrong_number(wrong):
    numbers = [target for target in targets() if wrong(target) != target]
    golds = [repr(number) for number in numbers]
    for form in ("{!r}", "{:,.10f}", "{:.2f}"):
        said = [boxed(form.format(wrong(number))) for number in numbers]
        assert math_reward(said, golds) == [0.0] * len(golds)


@needs_real_rows
@pytest.mark.parametrize("gold_of", [str, float, lambda answer: str(int(answer))])
def test_amc_is_paid_for_the_whole_number_and_for_no_other(gold_of):
    answers = [row["answer"] for row in read_rows("amc23")]
    golds = [gold_of(answer) for answer in answers]
    for form in ("{:.0f}", "{:.1f}", r"\text{{{:.0f}}}", r"m+n = {:.0f}"):
        assert math_reward([boxed(form.format(answer)) for answer in answers], golds) == [1.0] * len(golds)
        for wrong in (1, -1, 0.01):
            other = form.replace(":.0f", "").replace(":.1f", "")
            said = [boxed(other.format(answer + wrong)) for answer in answers]
            assert math_reward(said, golds) == [0.0] * len(golds)


@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_no_gold_of_math_has_a_tolerance_even_without_its_box(name):
    floats = [float_gold(gold_answer(row["solution"])) for row in read_rows(name)]
    assert [gold for gold in floats if gold is not None and gold.rounded] == []
    assert all(float_gold(row["solution"]) is None for row in read_rows(name))


# No raise, no hang


PIECES = [*'15,.- $%e^{}=/x()\\"', "23", "000", "{,}", r"\$", r"\%", "or", r"\frac", r"\frac{", "}{", r" \times 10^{"]
PIECES += [r"\text{", " million", "\u00a0", "٣", "\N{MINUS SIGN}", "ab ", r"\frac1", " 000", '5 "', "\ud800", "\x00"]


@pytest.mark.matrix
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("gold", ["7.123456789", "2.0107e-06"])
def test_a_long_repetition_is_not_paid_and_needs_no_child(gold, piece, monkeypatch):
    monkeypatch.setattr(reward_module, "shared_grader", None)
    started = time.process_time()
    for many in (piece * (1_900 // len(piece)), piece * (100_000 // len(piece))):
        for answer in (many, f"5{many}1", f"1{many}5.", rf"\frac{{{many}}}{{7}}"):
            assert not is_paid(gold, answer)
    assert time.process_time() - started < 4.0


DEEP = ["(" * 900 + "5" + ")" * 900, r"\text{" * 300 + "5" + "}" * 300, rf"\frac{{{'9' * 900}}}{{{'7' * 900}}}"]


@pytest.mark.parametrize("answer", ["1e999999999", r"1 \times 10^{999999999}", "9e999", "2^{2^{2^{49}}}", *DEEP])
def test_a_large_exponent_and_deep_brackets_are_not_paid_and_need_no_child(answer, monkeypatch):
    monkeypatch.setattr(reward_module, "shared_grader", None)
    started = time.process_time()
    assert not is_paid("7.123456789", answer)
    assert time.process_time() - started < 1.0


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_no_text_raises(answer):
    for reading in number_readings(answer):
        assert isinstance(reading, Fraction)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_every_float_is_its_own_echo_and_not_a_wrong_one(number):
    gold = float_gold(repr(number))
    assert gold.equals((Fraction(number),)) and gold.equals((Fraction(repr(number)),))
    changed = [wrong(number) for wrong in WRONG.values() if abs(number) > 1e-290]
    apart = [other for other in changed if abs(other - number) > math.ulp(number)]  # not neighbours beyond 2**53
    assert not any(gold.equals((Fraction(other),)) for other in apart)
