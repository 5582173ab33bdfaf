r"""The reward of a form: one box, closed and not empty, outside of thinking, and nothing about what is in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards import format_reward

from .answers import boxed

PAID = [boxed("5"), r"\fbox{5}", r"\boxed 5", r"\boxed{\pi}", "So it is $\\boxed{B}$.\n\nThe others are wrong."]
PAID += [f"<think>{boxed('1')} or {boxed('2')}</think> {boxed('3')}", f"{boxed('1')}</think>{boxed('3')}"]


@pytest.mark.parametrize("completion", PAID)
def test_one_answer_in_one_box_is_paid_whatever_it_is(completion):
    assert format_reward([completion]) == [1.0]


UNPAID = [boxed(""), boxed("5") + boxed("6"), boxed(boxed("5")), boxed("") + boxed("5"), r"\boxed{5"]
UNPAID += [f"<think>{boxed('5')}", r"\boxed" * 15_000, r"\boxed{" * 15_000, "{" * 50_000 + boxed("") + "}" * 50_000]
UNPAID += ["\ud800"]


@pytest.mark.parametrize("completion", UNPAID)
def test_no_answer_two_answers_and_cut_ones_are_not_paid(completion):
    assert format_reward([completion]) == [0.0]


def test_the_last_assistant_message_is_graded_and_the_share_without_an_answer_logged():
    metrics = {}
    messages = [{"role": "assistant", "content": boxed("5")}, {"role": "tool", "content": boxed("6")}]
    completions = [messages, [], boxed("5") * 2, "5"]
    assert format_reward(completions, log_metric=metrics.__setitem__, solution=["5"] * 4) == [1.0, 0.0, 0.0, 0.0]
    assert metrics == {"format/no_answer": 0.5}


@given(st.text())
def test_any_text_is_paid_nothing_by_itself_and_one_in_a_box_beside_it(text):
    assert format_reward([text]) == [0.0]
    if "<think>" not in text and "\\" not in text:
        assert format_reward([f"{text} {boxed('5')} {text}"]) == [1.0]
