"""Plain GRPO with the mean of the criteria, and span credit with the criteria, see equal rewards."""

import asyncio
import math
from functools import partial
from inspect import iscoroutinefunction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards import SpanReward, json_fields, json_fields_reward, mean_reward

from .answers import Letters

TRUTH = '{"city": "Paris", "quantity": 3}'  # with json, additional and outside: five criteria


def returning(*rows):
    def judged(texts, completions, **columns):
        return [list(row) for row in rows]

    return mean_reward(judged)


def mean(spans):
    by_name = {span.name: span.reward for span in spans}
    return sum(by_name.values()) / len(by_name)


def test_it_is_the_mean_of_the_criteria():
    said = [TRUTH, '{"city": "Rome", "quantity": 3}', 'Sure: {"city": "Rome", "n": 3}', "no", ""]
    assert json_fields_reward(said, truth=[TRUTH] * 5) == [1.0, 0.8, 0.2, 0.0, 0.0]


def test_criteria_that_were_not_judged_are_left_out_and_none_at_all_is_none():
    rows = [SpanReward("a", 1.0), SpanReward("b", None)], [], [SpanReward("a", None)]
    assert returning(*rows)([""] * 3) == [1.0, None, None]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([SpanReward("a", 1.0, 0, 1), SpanReward("a", 0.0, 1, 2)], "row 0: .* have one name"),
        ([SpanReward("a", 1.0, 5, 999)], "the place of 'a' must have"),
        ([SpanReward("a", math.nan)], "the reward of 'a' must be a finite number"),
        ([("a", 1.0)], "expected a SpanReward"),
    ],
)
def test_what_span_credit_refuses_is_refused(spans, message):
    with pytest.raises(ValueError, match=f"^judged_reward.*{message}"):
        returning(spans)(["xyz"])


@given(st.integers(1, 60), st.booleans())
def test_it_is_exactly_1_only_if_all_criteria_are_right(count, is_one_wrong):
    spans = [SpanReward(str(k), float(k > 0 or not is_one_wrong)) for k in range(count)]
    assert (returning(spans)([""]) == [1.0]) is not is_one_wrong


def keywords(completion, tokenizer=None, **columns):
    """What a function is called with."""

    def seen(**columns):
        got.update(columns)
        return [[SpanReward("a", 1.0)]]

    got = {}
    mean_reward(seen, tokenizer)([completion], **columns)
    return got


def test_the_function_gets_the_answers_as_texts_and_all_columns():
    messages = [{"role": "assistant", "content": "x"}]
    got = keywords(messages, prompts=["?"], truth=["t"], texts=["a column of the dataset"])
    assert got == {"completions": [messages], "texts": ["x"], "prompts": ["?"], "truth": ["t"]}


def test_a_message_that_trl_took_apart_is_put_together():
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    message = {"role": "assistant", "reasoning_content": "so", "content": "x", "tool_calls": [call]}
    text = '<think>so</think>x<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert keywords([message])["texts"] == [text]


SAID = [("assistant", "x"), ("tool", "y"), ("assistant", "z")]
DIALOGUE = [{"role": role, "content": content} for role, content in SAID]


def test_with_a_tokenizer_the_texts_are_those_of_span_credit():
    ids = [[*map(ord, "x#y#z#")]]
    assert keywords(DIALOGUE, Letters(), completion_ids=ids)["texts"] == ["x#y#z#"]
    given = mean_reward(lambda texts, **columns: [[SpanReward("a", float(text == "x#y#z#"))] for text in texts])
    assert given.with_tokenizer(Letters())([DIALOGUE], completion_ids=ids) == [1.0]


@pytest.mark.parametrize("tokenizer", [None, Letters()])
def test_a_dialogue_without_its_tokens_is_refused(tokenizer):
    with pytest.raises(
        ValueError, match="json_fields_reward, row 1: got a completion of 3 messages without its token"
    ):
        mean_reward(json_fields, tokenizer)(["{}", DIALOGUE], truth=["{}", "{}"])


def test_options_are_set_by_a_partial_and_the_name_is_the_functions():
    folded = mean_reward(partial(partial(json_fields, column="order"), fold=True))
    assert folded([TRUTH.upper().replace("CITY", "city").replace("QUANTITY", "quantity")], order=[TRUTH]) == [1.0]
    assert folded.__name__ == json_fields_reward.__name__ == "json_fields_reward"


class Judge:
    def __call__(self, texts, **columns):
        return [[SpanReward("long", float(len(text) > 1))] for text in texts]


class AsyncJudge(Judge):
    async def __call__(self, texts, **columns):
        await asyncio.sleep(0)
        return super().__call__(texts, **columns)


@pytest.mark.parametrize("judge", [AsyncJudge(), AsyncJudge().__call__, partial(AsyncJudge(), level=1)])
def test_an_async_function_gives_an_async_reward_function(judge):
    reward = mean_reward(judge)
    assert iscoroutinefunction(reward)
    assert asyncio.run(reward(["x", "xx"])) == mean_reward(Judge())(["x", "xx"]) == [0.0, 1.0]
    assert mean_reward(AsyncJudge()).__name__ == "AsyncJudge_reward"
