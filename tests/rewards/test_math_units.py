"""Units and scale words: another one is not paid, another spelling or none is."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.math_text import math_text
from tempo_trl.rewards.math_units import _SPELLINGS, in_another_unit

from .answers import reward


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (r"30\text{ cm}", [r"30\text{ m}", "30 m", r"\text{30 m}", r"x = 30\,\mathrm{m}", r"AB = 30\text{ m}"]),
        ("30 cm", ["30 m", r"30\text{ km}"]),
        (r"2400\mbox{ cm}^2", ["2400 m^2", r"2400\text{ in}^2", "2400 cm^3", r"2400\text{ cubic cm}", "2400 cm"]),
        (r"5\text{ hours}", [r"5\text{ minutes}", r"5\text{ days}", "5 min", "5 s"]),
        ("5 hours", ["5 minutes", "5 days"]),
        (r"5\text{ dollars}", [r"5\text{ cents}", "5 cents", "€5"]),
        (r"\$5", [r"5\text{ cents}", "5 cents"]),
        (r"5\text{ cents}", [r"\$5", "$5"]),
        (r"5:30\text{ p.m.}", [r"5:30\text{ a.m.}", "5:30 a.m.", "5:30 AM", r"\text{5:30 am}"]),
        (r"60\text{ mph}", [r"60\text{ km/h}", "60 km/h", r"60\text{ miles per minute}"]),
        (r"20^\circ\text{C}", [r"20^\circ F", r"20\text{ degrees Fahrenheit}"]),
        (r"90^\circ", [r"90\text{ radians}"]),
        (r"7\text{ feet }6\text{ inches}", [r"7\text{ feet }6\text{ cm}"]),
    ],
)
def test_the_right_number_with_another_unit_is_not_paid(gold, answers):
    assert {answer: reward(gold, answer) for answer in answers} == dict.fromkeys(answers, 0.0)


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (r"5 \text{ cm}", ["5cm", "5 cm", "5 centimeters", r"5\,\mathrm{cm}", r"5\text{ centimetres}", "5"]),
        (r"5\text{ cm}^2", ["5 cm^2", "5 cm²", "5 square centimeters", r"5\text{ sq. cm}", r"5\,\mathrm{cm^2}", "5"]),
        (r"864\mbox{ inches}^2", ["864 in^2", r"864\text{ square inches}", r"864\text{ units}^2"]),
        (r"5\text{ dollars}", [r"\$5", "$5", "5 dollars", r"5\text{ USD}"]),
        (r"\$5", ["5 dollars", r"5\text{ dollars}", "5"]),
        ("5 dollars", [r"\$5", "5", r"5\text{ dollars}"]),
        (r"\$15\text{ per hour}", [r"\$15", "15", r"15\text{ dollars per hour}"]),
        (r"40\text{ min}", ["40 minutes", "40 mins", r"40\text{ minutes}"]),
        (r"60\text{ mph}", ["60 miles per hour", r"60\text{ mi/h}", r"60\text{ miles}/\text{hour}"]),
        (r"90^\circ", ["90 degrees", "90°", "90"]),
        (r"20^\circ\text{C}", ["20°C", r"20^\circ C", "20 degrees Celsius", r"20^\circ", "20"]),
        (r"5:30\text{ p.m.}", ["5:30", "5:30 PM", "5:30pm", r"5:30\text{ pm}"]),
        (r"5\text{ pounds}", [r"5\text{ lbs}", "£5"]),
        (r"10\%", ["10 percent", r"10\text{ percent}"]),
        (r"7\text{ feet }6\text{ inches}", [r"7\text{ ft }6\text{ in}", r"7\text{ feet and }6\text{ inches}"]),
        (r"\text{five}", ["five"]),
        ("5", [r"5\text{ cm}", "5 apples"]),
    ],
)
def test_the_unit_in_another_spelling_or_none_is_paid(gold, answers):
    assert {answer: reward(gold, answer) for answer in answers} == dict.fromkeys(answers, 1.0)


def test_names_of_things_are_not_compared():
    assert reward(r"575\text{ students}", r"575\text{ people}") == 1.0
    assert reward(r"12\text{ cm}^2", r"12\text{ square units}") == 1.0


def test_words_in_front_and_other_sides_of_an_equation_are_not_the_unit():
    assert not in_another_unit(r"5\text{ hours}", r"\text{In }5\text{ hours}")
    assert not in_another_unit(r"5\text{ hours}", r"300\text{ minutes} = 5\text{ hours}")


def test_letters_of_a_formula_are_not_units():
    assert not in_another_unit("2h + 3m", "3m + 2h")
    assert not in_another_unit(r"2\pi h", r"h \cdot 2\pi")


@pytest.mark.parametrize("scale", ["million", "dozen", "billion", "hundred", "thousand", "trillion"])
@pytest.mark.parametrize("form", ["5 {}", r"5\text{{ {}}}", r"\text{{5 {}}}", r"\$5~\text{{{}}}"])
def test_a_scale_word_too_many_or_too_few_is_not_paid(scale, form):
    answer = form.format(scale)
    assert (reward("5", answer), reward(answer, "5"), reward(answer, answer + ".")) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "answer", ["5,000,000", r"5 \times 10^6", "5000 thousand", r"5\text{ million dollars}", "5 million"]
)
@pytest.mark.parametrize("gold", ["5 million", r"5\text{ million}", r"\$5\text{ million}", "5000000"])
def test_a_scale_word_multiplies(gold, answer):
    assert reward(gold, answer) == 1.0


def test_each_spelling_in_the_table_is_its_own_unit_and_no_other():
    for name, spellings in _SPELLINGS.items():
        for other, others in _SPELLINGS.items():
            for ours, theirs in ((ours, theirs) for ours in spellings.split() for theirs in others.split()):
                differ = name != other and not shared(ours, theirs)
                assert in_another_unit(text(ours), text(theirs)) is differ, (ours, theirs)


def shared(*spellings):
    """Whether the spellings may mean the same unit."""
    return any(all(spelling in words.split() for spelling in spellings) for words in _SPELLINGS.values())


def text(spelling):
    """Five of a unit, in the plural where it is a word."""
    if not spelling.isalpha():
        return {"$": r"\$5", "°": "5°"}.get(spelling, rf"5\text{{{spelling}}}")
    return rf"5\text{{ {spelling}{'s' if len(spelling) > 2 and spelling != 'feet' else ''}}}"


@pytest.mark.parametrize(
    ("gold", "answer", "other"),
    [
        (r"5\text{ cm}^2", r"5\text{ cm}^3", True),
        (r"5\text{ cm}^2", r"5\text{ cm}", True),
        (r"5\text{ cm}^2", r"5\text{ cm$^2$}", False),
        (r"5\text{ cm}^2", "5\\text{ cm²}", False),
        (r"5\text{ cm}^2", r"5\text{ square centimeters}", False),
        (r"5\text{ cm}^2", "5 cm^2", False),
        (r"5\text{ cm}^2", "5 cm^3", True),
        (r"5\text{ square units}", r"5\text{ cubic units}", True),
        (r"5\text{ cm}^2", r"5\text{ area units}", False),
        (r"5\text{ cm}^2", "5", False),
        (r"\text{east}", r"\text{west}", False),
    ],
)
def test_a_unit_has_one_power_in_digits_in_signs_or_in_words(gold, answer, other):
    assert in_another_unit(gold, answer) is other


PIECES = [*"5 }m²/$°C=(", r"\text{", "cm", "^2", " per ", "million", r"\$", r"^\circ"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_answer_is_in_another_unit_than_itself(answer):
    assert not in_another_unit(answer, answer)


@pytest.mark.parametrize(
    "piece", ["1", " ", "5 ", "5 cm ", r"\a", "°", r"\text{ cm}", r"\text{", "5 million ", "5 square "]
)
def test_the_longest_answers_cost_less_than_half_a_second(piece):
    started = time.process_time()
    for answer in (piece * (2000 // len(piece)), f"5{piece * (1990 // len(piece))}x"):
        in_another_unit("5 cm", math_text(answer))
    assert time.process_time() - started < 0.5
