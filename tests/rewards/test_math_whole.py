r"""A box is read as a whole or not at all: where a part is not read, only the same text is paid."""

import pytest

from .answers import reward

ARROWS = r"\to|\mapsto|\Rightarrow|\rightarrow|\leftrightarrow|\iff"
RELATIONS = r"\mid|\nmid|\parallel|\perp|\sim|\simeq|\cong|\equiv|\propto|\ll|\prec|\subset|\subseteq|\asymp"
OPERATIONS = r"\circ|\oplus|\bmod|\land|\lor|\setminus|\triangleright|&|\text{ to }|to|mod|\text{ boys and }|\quad| "
UNREAD = ["|", *"|".join((ARROWS, RELATIONS, OPERATIONS)).split("|")]


@pytest.mark.parametrize("between", UNREAD)
def test_what_is_not_read_is_compared_as_text(between):
    gold = f"3 {between} 5"
    answers = [f"2 {between} 5", f"3 {between} 6", f"5 {between} 3", "3", "5", "8", "15"]
    assert [answer for answer in answers if reward(gold, answer) != 0.0] == []
    assert [number for number in ("3", "5", "8", "15") if reward(number, gold) != 0.0] == []
    assert reward(gold, rf"3\,{between}  5.".replace(r"\,", " ")) == 1.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"x \equiv 1 \pmod 5", r"x \equiv 2 \pmod 5"),
        (r"f\colon A \to B", r"f\colon B \to A"),
        (r"\angle ABC", r"\angle ACB"),
        (r"\text{seat}", "east"),
        ("f(x)", "f'(x)"),
        ("3+2t", "3+2s"),
        ("3+2t", "3"),
        ("12", "1 2"),
        ("12", r"1\,2"),
        ("56", "5'6''"),
        (r"\text{A to B}", r"\text{B to A}"),
        (r"7\text{ cm}, 5\text{ cm}", "7"),
        (r"5\text{ ft }6\text{ in}", r"6\text{ ft }5\text{ in}"),
        (r"5\text{ ft }6\text{ in}", "5"),
    ],
)
def test_a_part_of_the_gold_is_not_the_gold(gold, answer):
    assert reward(gold, answer) == 0.0


@pytest.mark.parametrize("dots", [r"\ldots", r"\dots", r"\cdots", "...", "…"])
def test_a_list_with_dots_is_compared_as_text(dots):
    assert reward(f"2,3,{dots},8", "8") == reward("8", f"2,3,{dots},8") == reward(f"2,3,{dots},8", "2,3,8") == 0.0
    assert reward(rf"\{{1,2,{dots},10\}}", rf"\{{1,3,{dots},10\}}") == 0.0
    assert reward(f"2,3,{dots},8", r"2, 3, \ldots, 8") == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "paid"),
    [
        ("1:2:3", "1:3:2", 0.0),
        ("1:2:3", "(1,2,3)", 0.0),
        ("1:2:3", r"\frac16", 0.0),
        ("3:4:5", "6:8:10", 1.0),
        ("1:2", "2:4", 1.0),
        ("8:40", "4:20", 0.0),
        ("8:40", r"\frac15", 0.0),
        ("8:40", "8:40", 1.0),
        ("8:05", "08:05", 1.0),
        (r"8:40\text{ a.m.}", "8:40", 1.0),
        (r"8\!:\!40", "4:20", 0.0),
        ("3:10", r"\frac{3}{10}", 1.0),
    ],
)
def test_ratios_are_proportional_and_times_of_day_are_not(gold, answer, paid):
    assert reward(gold, answer) == paid


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"a \mid 6", r"a\mid 6"),
        (r"x\equiv 1\pmod 5", r"x \equiv 1 \pmod{5}"),
        (r"2 \to 5", r"2 \rightarrow 5"),
        (r"2 \Rightarrow 5", r"2 \implies 5"),
        (r"\log_2 5", "log_2(5)"),
        (r"\frac\pi 2", r"\frac{\pi}{2}"),
        (r"\left(\frac12\right)", r"\frac{1}{2}"),
        ("7 1/3", r"\frac{22}{3}"),
        (r"5\text{ cm}, 7\text{ cm}", "5, 7"),
        (r"4\pi\text{ cm}^2", r"4\pi"),
        (r"7\text{ feet }6\text{ inches}", r"7\text{ ft }6\text{ in}"),
    ],
)
def test_spellings_of_one_text_and_whole_formulas_are_paid(gold, answer):
    assert reward(gold, answer) == reward(answer, gold) == 1.0
