"""Brackets that change the kind of a value, and operators without what they need, are not paid."""

from itertools import permutations, product

import pytest

from tempo_trl.rewards.math_guards import has_idle_operator, has_other_repeats, in_another_kind

from .answers import reward


@pytest.mark.parametrize("inside", ["1,2", r"\frac12, 3", "1,2,3"])
def test_a_set_is_not_a_tuple_or_an_interval(inside):
    a_set, row, interval = rf"\{{{inside}\}}", f"({inside})", f"[{inside}]"
    assert [reward(a_set, row), reward(row, a_set), reward(a_set, interval), reward(interval, a_set)] == [0.0] * 4
    assert reward(rf"\left\{{{inside}\right\}}", a_set) == reward(rf"\left({inside}\right)", row) == 1.0


@pytest.mark.parametrize(("gold", "answer"), permutations(["(1,2)", "[1,2]", "(1,2]", "[1,2)"], 2))
def test_an_interval_with_another_end_is_not_paid(gold, answer):
    assert reward(gold, answer) == 0.0


@pytest.mark.parametrize(("gold", "answer"), [("(1,2)", r"(x,y)=\{1,2\}"), (r"\{1,2\}", r"x\in(1,2)")])
def test_the_kind_is_that_of_the_value_behind_a_name(gold, answer):
    assert reward(gold, answer) == 0.0


def test_brackets_left_out_are_the_golds():
    assert (
        reward(r"\{1,2\}", "1,2") == reward("(1,2)", "1,2") == reward("1,2", "(1,2)") == reward("1,2", r"\{1,2\}") == 1
    )


def test_three_values_in_square_brackets_are_a_tuple():
    assert reward("(1,2,3)", "[1,2,3]") == 1.0


@pytest.mark.parametrize("value", ["42", r"\frac12", "x+1"])
def test_single_brackets_around_one_value_count_for_nothing(value):
    forms = [value, f"({value})", f"[{value}]", rf"\{{{value}\}}"]
    assert [reward(gold, answer) for gold, answer in product(forms, forms)] == [1.0] * 16


@pytest.mark.parametrize(
    ("gold", "answer", "other"),
    [
        (r"\max\{a,b\}", r"\max(a,b)", False),
        (r"\{a, f(1,2)\}", "f(1,2)", False),
        (r"\{(1,2),(3,4)\}", "(1,2),(3,4)", False),
        (r"(1,2),(3,4)", r"\{1,2\},\{3,4\}", True),
        (r"(0,1)\cup(2,3)", r"\{0,1\}\cup\{2,3\}", True),
    ],
)
def test_brackets_of_a_call_and_nested_ones(gold, answer, other):
    assert in_another_kind(gold, answer) is other


@pytest.mark.parametrize("operator", [r"\sum", r"\prod", r"\lim", r"\max", r"\forall", r"\neq", r"\geq", r"x = \sum"])
def test_an_operator_without_bounds_arguments_or_left_side_is_not_paid(operator):
    assert reward("42", f"{operator} 42") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("42", r"\sum_{i=1}^{42} 1"),
        ("42", r"\max(1, 42)"),
        ("42", r"\min f = 42"),
        (r"x \geq 42", r"\geq 42"),
        (r"[42,\infty)", r"x \geq 42"),
        (r"\infty", r"\infty"),
    ],
)
def test_an_operator_with_them_or_in_the_gold_is_not_refused(gold, answer):
    assert not has_idle_operator(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), [("YNYN", "YYNN"), ("BAC", "ABC"), ("YNYN", r"\text{YYNN}")])
def test_capitals_in_another_order_are_another_word(gold, answer):
    assert reward(gold, answer) == 0.0
    assert reward(gold, rf"\text{{{gold}}}") == reward(gold, " ".join(gold)) == 1.0


@pytest.mark.parametrize(
    ("gold", "answer"), [("1,1,2", "1,2,2"), ("1,1", "1"), ("1", "1,1"), ("1,2", "2, 1, 2"), ("1, 1, 2", "1, 2")]
)
def test_a_value_is_in_a_list_as_often_as_in_the_golds(gold, answer):
    assert reward(gold, answer) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1,1,2", "2,1,1"),
        ("1,1,2", "1, 2, 1"),
        ("1,000,000", "1000000"),
        (r"1,\!000,\!000", "1,000,000"),
        (r"\{1,2,3\}", r"\{1,2,2,3\}"),
    ],
)
def test_the_order_of_a_list_and_the_repeats_of_a_set_and_of_digits_do_not_count(gold, answer):
    assert not has_other_repeats(gold, answer)
    assert reward(gold, answer) == 1.0
