r"""What a text answers: its last balanced box, outside of thinking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.boxed import committed_answer, committed_answers, gold_answer, last_box


@pytest.mark.parametrize(
    "text, content",
    [
        (r"\boxed{5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed 5$ apples", "5"),
        (r"\boxed -3.5.", "-3.5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"first \boxed{3}, then \boxed{4}", "4"),
        (r"\boxed{x = \boxed{4}}", "4"),
        (r"\boxed{3} then \boxed{4", "3"),
        (r"\boxed{}", ""),
        (r"write \boxed around it", None),
        ("5", None),
    ],
)
def test_the_last_balanced_box_holds_the_answer(text, content):
    assert last_box(text) == content


def last_box_by_definition(pieces):
    """From the last opening to the first: the content up to where the braces balance, if they do."""
    for first in reversed(range(len(pieces))):
        depth = 0
        for last in range(first, len(pieces)):
            depth += (pieces[last] in {r"\boxed{", r"\fbox{", "{"}) - (pieces[last] == "}")
            if depth == 0:
                break
        if pieces[first] in {r"\boxed{", r"\fbox{"} and depth == 0:
            return "".join(pieces[first + 1 : last])
    return None


@given(st.lists(st.sampled_from([r"\boxed{", r"\fbox{", "{", "}", r"\{", r"\}", r"\\", "5", " "])))
def test_the_single_pass_finds_the_box_of_the_definition(pieces):
    assert last_box("".join(pieces)) == last_box_by_definition(pieces)


@pytest.mark.parametrize(
    "completion, answer",
    [
        (r"<think>\boxed{3}</think> So \boxed{5}.", "5"),
        (r"\boxed{3}</think> So \boxed{5}.", "5"),
        (r"<think>a</think> \boxed{3} <think>b</think> \boxed{5}", "5"),
        (r"<think>\boxed{5}</think> So 5.", ""),
        (r"<think>\boxed{5}", ""),
        (r"\boxed{5} <think> but wait", ""),
        (r"<think>a</think> \boxed{5} <think> but wait", ""),
        (r"\boxed{ }", ""),
    ],
)
def test_an_unfinished_thought_is_not_an_answer(completion, answer):
    assert committed_answer(completion) == answer


@pytest.mark.parametrize(
    "solution, answer",
    [
        (r"so $x = \boxed{5}$", "5"),
        (" 5 ", "5"),
        (r"\boxed{}", ""),
        ("", ""),
        (r"cut \boxed{5", ""),
    ],
)
def test_a_gold_is_a_worked_solution_or_a_bare_answer(solution, answer):
    assert gold_answer(solution) == answer


@pytest.mark.parametrize(
    "completion, answers",
    [
        (r"\boxed{3} or \boxed{5}", ("3", "5")),
        (r"Either \boxed{3} or perhaps $\boxed{5}$.", ("3", "5")),
        (r"\boxed{3}, \boxed{4}, and \boxed{5}", ("3", "4", "5")),
        (r"\boxed{3} \text{ or } \boxed{5}", ("3", "5")),
        (r"It is \boxed{3}, not \boxed{5}.", ("3",)),
        (r"\boxed{3}; \boxed{5} would be wrong.", ("3",)),
        (r"\boxed{3} rather than \boxed{5}", ("3",)),
        (r"x \neq \boxed{5}", ()),
        (r"Many would say \boxed{5}.", ()),
        (r"A common mistake is \boxed{5}.", ()),
        (r"\boxed{5} Wait, no.", ()),
        (r"\boxed{5}. Hold on, that's not right.", ()),
        (r"\boxed{3}. Actually, that is wrong. It is \boxed{5}.", ("5",)),
        (r"\boxed{x = \boxed{5}}", ("5",)),
        (r"\boxed{5}, that is, \boxed{5}", ("5",)),
        (r"\boxed{3} or rather, after another look, \boxed{5}", ("5",)),
        (r"First $x = \boxed{3}$. Then $y = \boxed{5}$.", ("5",)),
        (r"The answer is \boxed{5}, which is not divisible by 2.", ("5",)),
        (r"\boxed{5}, which cannot be simplified further.", ("5",)),
        (r"the largest possible error is \boxed{5}", ("5",)),
        (r"\boxed{5}. Wait, let me check: yes.", ("5",)),
        (r"One gets \boxed{5}.", ("5",)),
        ("\\boxed{5}\n\nLet me know if I made a mistake!", ("5",)),
        (r"\boxed{5}. Tell me whether I was wrong.", ("5",)),
        (r"\boxed{5} (earlier I made a mistake in step 2)", ("5",)),
        (r"\boxed{5}. I made a mistake.", ()),
        ("no box", ()),
    ],
)
def test_boxes_that_are_denied_or_withdrawn_commit_to_nothing_and_joined_ones_are_one_statement(completion, answers):
    assert committed_answers(completion) == answers
    assert committed_answer(completion) == (answers[0] if len(answers) == 1 else "")


def test_a_gold_stands_behind_the_mark_of_gsm8k():
    assert gold_answer("12 + 15 = 27\n#### 27") == "27"
