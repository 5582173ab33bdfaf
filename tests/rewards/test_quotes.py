"""A quotation of a judge is found where the completion has it, up to white space, and its score falls there."""

import asyncio
import re
from functools import partial
from inspect import iscoroutinefunction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.quotes import Quote, quotes
from tempo_trl.rewards.reading import SampledText
from tempo_trl.rewards.span_reward import SpanReward
from tempo_trl.trainers.span_rewards import checked_spans

TEXT = "The tower is 300 metres tall. It was\n built in 1789.<|im_end|>"


def judged(*said, text=TEXT, log_metric=None):
    """Criteria of one completion of which a judge says this."""
    [spans] = quotes(lambda **_: [list(said)])(texts=[text], log_metric=log_metric)
    return spans


def test_a_quotation_is_the_place_of_its_score():
    spans = judged(("height", 1.0, "300 metres tall"), ("polite", 0.5, None), ("short", None))
    assert spans == [("height", 1.0, 13, 28), ("polite", 0.5, None, None), ("short", None, None, None)]
    assert TEXT[13:28] == "300 metres tall"
    assert all(isinstance(span, SpanReward) for span in spans)


def test_white_space_may_differ():
    [span] = judged(("date", 0.0, "  was built\t\nin 1789 "))
    assert TEXT[span.start : span.end] == "was\n built in 1789"
    assert (span.start, span.end) == (33, 51)


def test_a_quotation_is_of_the_policy_and_not_of_a_tool():
    said = ["look(tower)<|im_end|>", "\nThe tower is 300 metres tall.\n", "It is 300 metres tall.<|im_end|>"]
    text = "".join(said)
    last = len(text) - len(said[-1])
    spans = judged(
        ("height", 1.0, "300 metres tall"),
        ("tool", 0.0, "The tower is"),
        text=SampledText(text, [(0, len(said[0])), (last, len(text))]),
    )
    assert spans == [("height", 1.0, last + 6, last + 21), ("tool", 0.0, None, None)]


def test_quotes_tuples_and_dicts_mean_the_same():
    said = [Quote("a", 1, "tall"), ("a", 1, "tall"), {"name": "a", "score": 1, "quote": "tall"}, ["a", 1, "tall"]]
    assert {tuple(judged(each)) for each in said} == {(("a", 1, 24, 28),)}


def test_the_first_occurrence_of_whole_words_counts():
    assert judged(("a", 1.0, "is"), text="This is it. It is.") == [("a", 1.0, 5, 7)]  # not the end of "This"


def test_the_answer_comes_before_the_thought():
    text = "<think>It is 300 m, I guess.</think>It is 300 m."
    answer, thought = judged(("height", 1.0, "It is 300 m"), ("sure", 0.0, "I guess"), text=text)
    assert text[: answer.start].endswith("</think>") and text[thought.start : thought.end] == "I guess"


NO_WORDS = [("hi", "This is it."), ("bar", "foo_bar or bar2 or bars"), ("cafe", "cafe\u0301")]
NO_WORDS += [("300 metres", "1.300 metres or 1’300 metres"), ("costs 1", "It costs 1,300 or it costs 1.5")]
NO_WORDS += [(".5 metres", "0.5 metres"), ("30", "at 10:30"), ("2 cups", "1/2 cups")]
NO_WORDS += [("5 degrees", "-5 degrees, or (−5 degrees)")]


@pytest.mark.parametrize(("quote", "text"), NO_WORDS)
def test_a_quotation_begins_and_ends_where_a_word_or_a_number_does(quote, text):
    assert judged(("a", 1.0, quote), text=text) == [("a", 1.0, None, None)]
    [span] = judged(("a", 1.0, quote), text=f"{text}; {quote}")
    assert span.start == len(text) + 2


@pytest.mark.parametrize(
    ("quote", "text"), [("高", "塔高三百米。"), ("5", "3-5 or x=5."), ("x", "x,300"), ("1", "1, 300")]
)
def test_other_neighbours_are_no_part_of_it(quote, text):
    [span] = judged(("a", 1.0, quote), text=text)
    assert text[span.start : span.end] == quote


@pytest.mark.parametrize("quote", ["", " \n", None])
def test_an_empty_quotation_has_no_place_and_is_not_counted(quote):
    logged = {}
    assert judged(("a", 1.0, quote), log_metric=logged.__setitem__) == [("a", 1.0, None, None)]
    assert logged == {}


def test_case_and_kinds_of_marks_may_differ():
    text = "İt said: “Don’t – ever.”"
    for quote in ("IT SAID", "don't - EVER", "\"Don't"):
        [span] = judged(("a", 1.0, quote), text=text)
        assert len(quote) == span.end - span.start
    assert judged(("a", 1.0, "it"), text="It, or it") == [("a", 1.0, 7, 9)]  # as it stands, before another case


def test_marks_around_a_quotation_may_be_the_judges_own():
    assert judged(("a", 1.0, '"tall."')) == [("a", 1.0, 24, 29)]
    assert judged(("a", 1.0, '"tall"'), text='so "tall"') == [("a", 1.0, 3, 9)]


def test_several_quotations_of_one_criterion_are_its_places():
    spans = judged(("a", 1.0, "tower"), ("a", 1.0, "tall"), ("a", 1.0, "tower"), ("a", 1.0, "not there"))
    assert spans == [("a", 1.0, 4, 9), ("a", 1.0, 24, 28)]
    assert judged(("a", 1.0, "not there"), ("a", 1.0, None)) == [("a", 1.0, None, None)]
    one_in_another = judged(("a", 1.0, "tower is"), ("a", 1.0, "tower"))
    assert one_in_another == [("a", 1.0, 4, 12), ("a", 1.0, 4, 9)]


def test_a_quotation_that_is_not_there_has_no_place_and_is_counted():
    logged = {}
    func = quotes(lambda **_: [[("a", 1.0, "tower"), ("b", 0.0, "bridge"), ("c", 1.0, None)], [("a", 1.0, "owe")]])
    spans = func(texts=[TEXT, TEXT], log_metric=logged.__setitem__)
    assert spans == [[("a", 1.0, 4, 9), ("b", 0.0, None, None), ("c", 1.0, None, None)], [("a", 1.0, None, None)]]
    assert logged == {"quotes/found": 1 / 3}


def test_the_judge_is_called_with_all_keywords_and_gives_its_name():
    def tower_judge(texts, completions, topic, **columns):
        assert (completions, topic) == (["said"], ["towers"])
        return [[("a", 1.0, texts[0][4:9])]]

    func = quotes(partial(tower_judge, topic=["towers"]))
    assert func.__name__ == "tower_judge"
    assert func(texts=[TEXT], completions=["said"], log_metric=None) == [[("a", 1.0, 4, 9)]]


async def async_judge(texts, **columns):
    await asyncio.sleep(0)
    return [[("a", 1.0, "tower")] for _ in texts]


@pytest.mark.parametrize("judge", [async_judge, partial(async_judge, strict=True)])
def test_an_async_judge_makes_an_async_function(judge):
    func = quotes(judge)
    assert iscoroutinefunction(func)
    assert asyncio.run(func(texts=[TEXT])) == [[("a", 1.0, 4, 9)]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return 1 lists of Quote, one per completion, got NoneType"),
        ([], "got 0 lists"),
        ([None], "row 0: expected a list of Quote, got None"),
        ([[{"name": "a", "reward": 1.0}]], "expected .name, score"),
        ([[("a", [1.0], "x")]], "row 0: expected .name, score"),
        *(([[("a", 1.0, "tower"), ("a", 0.0, other)]], "row 0: .* have one name") for other in ("tower", "tall", "y")),
        ([[("a", 1.0, "x"), ("a", 0.0, "y")]], "row 0: .*reward=1.0.*reward=0.0.* have one name"),
    ],
)
def test_anything_else_is_an_error_that_names_judge_and_row(returned, message):
    def strict_judge(**_):
        return returned

    with pytest.raises(ValueError, match=f"strict_judge.*{message}"):
        checked_spans(quotes(strict_judge)(texts=[TEXT]), [TEXT], "strict_judge")


WRITTEN = st.text(max_size=40) | st.text(alphabet="aA b\n\t'’“\"İΣς-–", max_size=40)


@given(WRITTEN, st.data())
def test_any_words_of_a_text_are_found_with_the_same_words(text, data):
    starts = [match.start() for match in re.finditer(r"\S+", text)] or [0]
    start = data.draw(st.sampled_from(starts))
    end = data.draw(st.sampled_from([at for at in [*starts, len(text)] if at >= start]))
    quote = text[start:end]
    [[span]] = checked_spans([judged(("a", 1.0, quote), text=text)], [text], "judge")
    if quote.strip():
        assert text[span.start : span.end].split() == quote.split()


@pytest.mark.parametrize("text", ["a " * 8000, "a" * 16000, " " * 16000, "a" + " " * 15998 + "b", "'\"" * 8000])
def test_long_repetitions_end(text):
    for quote in (text, text[:8000] + "b", "a a b", "a" * 8000, "b", '"' * 8000):
        judged(("a", 1.0, quote), text=text)
