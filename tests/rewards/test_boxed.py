r"""What a text answers: its balanced boxes, outside of thinking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.boxed import after_thinking, boxes, counted, gold_answer

BOXED = [(r"\boxed{5}", ["5"]), (r"\fbox{5}", ["5"]), (r"\boxed -3.5.", ["-3.5"]), (r"\boxed {5}", ["5"])]
BOXED += [(r"\boxed{\left\{ x \right.}", [r"\left\{ x \right."]), (r"first \boxed{3}, then \boxed{4}", ["3", "4"])]
BOXED += [(r"\boxed{x = \boxed{4}}", [r"x = \boxed{4}"]), (r"\boxed{3 then \boxed{4}", ["4"])]
BOXED += [(r"put it into \boxed{}: \boxed{ 5 }", ["5"])]


@pytest.mark.parametrize("text, contents", BOXED)
def test_the_outermost_balanced_boxes_hold_the_answers(text, contents):
    assert boxes(text) == contents


def boxes_by_definition(pieces):
    """From the first opening on: the content up to where the braces balance, if they do."""
    found, first = [], 0
    while first < len(pieces):
        depth, last = 0, first
        if pieces[first] in {r"\boxed{", r"\fbox{"}:
            for last in range(first, len(pieces)):
                depth += (pieces[last] in {r"\boxed{", r"\fbox{", "{"}) - (pieces[last] == "}")
                if depth == 0:
                    found.append("".join(pieces[first + 1 : last]).strip())
                    break
        first = last + 1 if depth == 0 else first + 1
    return [content for content in found if content]


@given(st.lists(st.sampled_from([r"\boxed{", r"\fbox{", "{", "}", r"\{", r"\}", r"\\", "5", " "])))
def test_the_single_pass_finds_the_boxes_of_the_definition(pieces):
    assert boxes("".join(pieces)) == boxes_by_definition(pieces)


THOUGHTS = [(r"<think>\boxed{3}</think> So \boxed{5}.", r" So \boxed{5}.")]
THOUGHTS += [(r"\boxed{3}</think>\boxed{5}", r"\boxed{5}")]
THOUGHTS += [(r"<think>a</think> \boxed{3} <think>b</think>\boxed{5}", r"\boxed{5}"), (r"<think>\boxed{5}", "")]
THOUGHTS += [(r"<think>a</think> \boxed{5} <think> or", r" \boxed{5} <think> or")]


@pytest.mark.parametrize("completion, said", THOUGHTS)
def test_the_thought_ends_at_the_last_tag_and_one_that_never_ends_is_no_answer(completion, said):
    assert after_thinking(completion) == said


def test_all_answers_count_once_or_the_last_alone():
    assert counted(["3", "5", "3"], "all") == ("3", "5")
    assert counted(["3", "5", "3"], "last") == ("3",)
    assert counted([], "last") == counted([], "all") == ()
    with pytest.raises(ValueError, match='`boxes` is \'first\', expected "all" or "last"'):
        counted(["3"], "first")


GOLDS = [(r"\boxed{3}, hence \boxed{5}", "5"), ("12 + 15 = 27\n#### 27", "27"), (" 5 ", "5"), (r"\boxed{}", "")]
GOLDS += [(r"cut \boxed{5", "")]


@pytest.mark.parametrize("solution, answer", GOLDS)
def test_a_gold_is_a_worked_solution_or_a_bare_answer(solution, answer):
    assert gold_answer(solution) == answer
