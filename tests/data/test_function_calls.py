"""The benchmark `function_calls`: rows as the Hub has them, with calls in JSON or in Python's literals."""

import json

import pytest

from tempo_trl.data import load_prompts
from tempo_trl.data.function_calls import to_row
from tempo_trl.rewards import tool_call_fields

from .rows import HUB_ROWS, function_row, write_file

ROWS = HUB_ROWS["function_calls"]


def answered(*calls: str) -> dict:
    return function_row("\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls))


def test_the_tools_are_in_a_system_message_that_asks_for_json(tmp_path):
    [prompt] = load_prompts("function_calls", path=write_file(tmp_path / "rows.jsonl", ROWS[:1]))["prompt"]
    system, user = prompt
    assert '<tools>\n{"type": "function", "function": {}}\n</tools>' in system["content"]
    assert '{"name": <function-name>, "arguments": <args-json-object>}' in system["content"]
    assert user == {"role": "user", "content": "I have to go."}


def test_several_calls_of_one_answer_are_expected_in_their_order():
    row = answered('{"name": "first", "arguments": {}}', "{'arguments': {'x': None}, 'name': 'second'}")
    assert [call["name"] for call in json.loads(to_row(row)["calls"])] == ["first", "second"]


def test_the_expected_calls_earn_all_rewards():
    for row in (to_row(row) for row in ROWS):
        (spans,) = tool_call_fields([row["solution"] + "<|im_end|>"], calls=[row["calls"]])
        assert {span.reward for span in spans} == {1.0}


UNREADABLE = ["I cannot do that.", "<tool_call>\n{'name': 'go', 'arguments': {'is_fast': true}}\n</tool_call>"]
NAMES = ("", '"name": "", ', '"name": null, ')
UNREADABLE += [f'<tool_call>{{{name}"arguments": {{}}}}</tool_call>' for name in NAMES]
UNREADABLE += ['<tool_call>["go"]</tool_call>', '<tool_call>{"name": "go", "arguments": {"x": NaN}}</tool_call>']


@pytest.mark.parametrize("answer", UNREADABLE)
def test_rows_without_calls_that_can_be_read_are_left_out(answer, tmp_path):
    assert to_row(function_row(answer)) is None
    rows = [function_row(answer), ROWS[1]]
    assert load_prompts("function_calls", path=write_file(tmp_path / "rows.jsonl", rows))["row_id"][:] == [1]


def test_only_the_first_answer_is_expected():
    row = ROWS[1] | {"conversations": [*ROWS[1]["conversations"], {"from": "gpt", "value": "Here you are."}]}
    assert to_row(row) == to_row(ROWS[1])
