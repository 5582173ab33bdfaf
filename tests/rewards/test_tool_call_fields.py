"""Tool calls are compared with expected ones argument by argument, each with the characters that decided it."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_parsing.response_parser import parse_response
from trl.chat_template_utils import qwen3_5_template

from tempo_trl.rewards import json_fields
from tempo_trl.rewards.tool_call_fields import tool_call_fields
from tempo_trl.rewards.written_calls import find_call
from tempo_trl.trainers.span_rewards import checked_spans

END = "<|im_end|>"
WEATHER = {"name": "weather", "arguments": {"city": "Paris", "days": 3}}
CLOCK = {"name": "clock", "arguments": {}}


def written(*calls, end=END):
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls) + end


def judged(text, expected, completions=None, **options):
    """Criteria of one completion as (reward, the characters of each place), by name without `calls[0].`."""
    spans = tool_call_fields([text], completions, calls=[expected], **options)
    found = {}
    for name, reward, start, end in checked_spans(spans, [text], "tool_call_fields")[0]:
        places = found.setdefault(name.removeprefix("calls[0]."), (reward, []))[1]
        places += [] if start is None else [text[start:end]]
    return found


def test_each_argument_is_decided_by_its_key_and_value():
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
    [spans] = tool_call_fields([text], calls=[[WEATHER]])
    assert spans == [
        ("calls[0].name", 1.0, 13, 30),
        ("calls[0].arguments.city", 0.0, 46, 60),
        ("calls[0].arguments.days", 0.0, 60, 61),
        ("calls[0].format", 1.0, 0, 75),
        ("calls[0].additional", 1.0, 60, 61),
        ("calls[0].additional", 1.0, 61, 62),
        ("extra_calls", 1.0, 75, 85),
    ]
    assert [text[span.start : span.end] for span in spans[:3]] == ['"name": "weather"', '"city": "Rome"', "}"]
    assert text[75:85] == END


SAME = [[WEATHER], json.dumps([WEATHER]), [{"type": "function", "function": WEATHER}]]
SAME += [[{"type": "function", "function": WEATHER | {"arguments": '{"city": "Paris", "days": 3}'}}]]
SAME += [(WEATHER | {"arguments": {"days": 3.0, "city": "Paris"}},)]


@pytest.mark.parametrize("expected", SAME)
def test_expected_calls_may_be_objects_messages_or_json(expected):
    assert {reward for reward, _ in judged(written(WEATHER), expected).values()} == {1.0}


@pytest.mark.parametrize("expected", [[CLOCK], [{"name": "clock"}], [{"name": "clock", "arguments": None}]])
def test_without_expected_arguments_null_or_nothing_will_do(expected):
    for call in ({"name": "clock"}, {"name": "clock", "arguments": None}, CLOCK):
        assert {reward for reward, _ in judged(written(call), expected).values()} == {1.0}
    assert judged(written(CLOCK | {"arguments": {"a": 1}}), expected)["arguments"] == (0.0, ['"arguments": {"a": 1}'])
    assert judged("<tool_call>null</tool_call>", expected)["arguments"] == (0.0, ["null"])


def test_additional_arguments_are_wrong_where_they_stand():
    call = {"name": "weather", "arguments": {"city": "Paris", "unit": "C", "days": 3}}
    found = judged(written(call), [WEATHER])
    assert found["additional"] == (0.0, ['"unit": "C"'])
    assert found["arguments.days"][0] == 1.0


def test_folding_is_an_option_also_for_names():
    call = {"name": "Weather", "arguments": {"city": " PARIS", "days": True}}
    rewards = [
        [reward for reward, _ in judged(written(call), [WEATHER], fold=fold).values()] for fold in (False, True)
    ]
    assert [each[:3] for each in rewards] == [[0.0] * 3, [1.0, 1.0, 0.0]]


def test_a_call_that_is_not_json_is_wrong_from_the_error_to_its_end():
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Paris", days: 3}}</tool_call>' + END
    found = judged(text, [WEATHER])
    rest = "days: 3}}</tool_call>"
    assert found["name"][0] == found["arguments.city"][0] == 1.0
    assert found["arguments.days"] == found["format"] == found["additional"] == (0.0, [rest])
    assert found["extra_calls"] == (1.0, [END])


def test_what_stands_instead_of_a_closing_tag_decides_the_format():
    call = json.dumps(WEATHER)
    found = judged(f"<tool_call>\n{call}{END}", [WEATHER])
    assert found.pop("format") == (0.0, [END])
    assert {reward for reward, _ in found.values()} == {1.0}
    two = judged(f"<tool_call>{call}\n<tool_call>{call}</tool_call>", [WEATHER] * 2)
    assert two["format"] == (0.0, ["\n<tool_call>"])
    assert two["calls[1].format"][0] == 1.0
    assert judged(f"<tool_call>{call} or so</tool_call>", [WEATHER])["format"] == (0.0, ["or so</tool_call>"])
    assert judged(f"<tool_call>[{call}]</tool_call>", [WEATHER])["format"] == (0.0, [f"[{call}]"])


def test_the_first_closing_tag_ends_a_call_in_a_string_too():
    text = '<tool_call>{"name": "a</tool_call>b"}</tool_call>'
    assert judged(text, [{"name": "a</tool_call>b"}])["name"] == (0.0, ['"a</tool_call>'])


def test_a_missing_call_is_decided_where_it_could_have_begun():
    found = judged(written(WEATHER), [WEATHER, CLOCK])
    for name in ("name", "arguments", "format", "additional"):
        assert found[f"calls[1].{name}"] == (0.0, [END])
    assert found["extra_calls"] == (1.0, [END])
    more = judged("<tool_call>" + json.dumps(WEATHER) + "</tool_call> Done." + END, [WEATHER, CLOCK])
    assert more["calls[1].name"] == (0.0, [" "])


def test_without_a_call_the_whole_answer_decided():
    found = judged("<think>so</think>It rains." + END, [WEATHER])
    assert found.pop("extra_calls") == (1.0, [])
    assert set(map(str, found.values())) == {str((0.0, ["It rains." + END]))}
    assert judged("It rains." + END, []) == {"extra_calls": (1.0, [])}


def test_extra_calls_are_wrong_where_they_stand():
    text = written(WEATHER, CLOCK, CLOCK)
    one = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    assert judged(text, [WEATHER])["extra_calls"] == (0.0, [one, one])
    assert judged(written(CLOCK), []) == {"extra_calls": (0.0, [one])}
    assert judged(written(*[CLOCK] * 30), [CLOCK] * 3)["extra_calls"] == (0.0, [one] * 16)


def test_an_extra_call_that_is_not_in_the_text_has_no_place_beside_one_that_is():
    calls = [{"type": "function", "function": call} for call in (CLOCK, WEATHER)]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    one = written(CLOCK, end="")
    assert judged(one + END, [], [[message]]) == {"extra_calls": (0.0, [one])}


def test_a_call_without_a_name_stands_where_it_is_written():
    unnamed = {"name": "", "arguments": {"a": 1}}
    message = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": unnamed}]}
    one = written(unnamed, end="")
    assert judged(one + END, [], [[message]]) == {"extra_calls": (0.0, [one])}


def test_in_order_the_first_call_is_compared_with_the_first_and_unordered_with_the_best():
    text, other = written(CLOCK, WEATHER), {"name": "weather", "arguments": {"city": "Rome", "days": 3}}
    assert judged(text, [WEATHER, CLOCK])["name"][0] == 0.0
    found = judged(text, [WEATHER, CLOCK], ordered=False)
    assert {reward for reward, _ in found.values()} == {1.0}
    found = judged(written(WEATHER, other), [other, WEATHER], ordered=False)
    assert {reward for reward, _ in found.values()} == {1.0}
    found = judged(written(CLOCK, WEATHER, other), [other], ordered=False)
    assert found["name"][0] == found["arguments.city"][0] == 1.0
    assert found["extra_calls"] == (0.0, [written(CLOCK, end=""), written(WEATHER, end="")])


def test_calls_in_thoughts_are_not_calls():
    call = written(CLOCK, end="")
    for thought in (f"<think>{call}</think>", f"{call}</think>", f"<think>{call}"):
        assert judged(thought + END, [CLOCK])["name"][0] == 0.0
    assert judged(f"<think>{call}</think>{call}{END}", [CLOCK])["name"][0] == 1.0
    assert judged(f"so</think>{call}<think>{call}</think>{END}", [CLOCK])["extra_calls"][0] == 1.0
    assert judged(f"so</think>A <think> is text: {call}{END}", [CLOCK])["name"][0] == 1.0


def test_of_equal_ones_the_first_expected_call_gets_a_call_also_where_others_are_missing():
    text = "<tool_call>{broken</tool_call>" + written(WEATHER)
    found = judged(text, [WEATHER, CLOCK, WEATHER], ordered=False)
    assert [found[name][0] for name in ("name", "calls[1].name", "calls[2].name")] == [1.0, 0.0, 0.0]


def test_calls_of_several_turns_are_read_in_order():
    turns = written(WEATHER) + "\n<|im_start|>user\n<tool_response>\n20\n</tool_response>" + END + written(CLOCK)
    assert {reward for reward, _ in judged(turns, [WEATHER, CLOCK]).values()} == {1.0}


MESSAGES = [
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": WEATHER}]},
    {"role": "tool", "name": "weather", "content": "20"},
    {"role": "assistant", "content": "It is warm."},
]


def test_parsed_calls_whose_tags_are_gone_are_judged_without_places():
    found = judged("It is warm.", [WEATHER], [MESSAGES])
    assert set(map(str, found.values())) == {str((1.0, []))}
    assert judged("It is warm.", [CLOCK], [MESSAGES])["name"] == (0.0, [])
    assert judged("It is warm.", [CLOCK], [MESSAGES[2:]])["name"] == (0.0, ["It is warm."])


def test_arguments_of_a_servers_call_are_json_text():
    text, message = written(WEATHER), {"role": "assistant", "content": ""}
    objects, texts = (
        [[message | {"tool_calls": [{"type": "function", "function": WEATHER | {"arguments": arguments}}]}]]
        for arguments in (WEATHER["arguments"], json.dumps(WEATHER["arguments"]))
    )
    assert judged(text, [WEATHER], texts) == judged(text, [WEATHER], objects)
    assert judged(text, [CLOCK | {"name": "weather"}], texts)["arguments"][0] == 0.0


def test_a_call_that_is_nested_beyond_reason_has_no_place():
    deep = {}
    for _ in range(2000):
        deep = {"a": deep}
    assert find_call({"name": "weather", "arguments": deep}, "weather", 0) is None


def test_calls_that_a_template_does_not_write_as_json_are_judged_as_trl_parsed_them():
    city, close = "<parameter=city>\nParis\n</parameter>", "</function>"
    call = f"<tool_call>\n<function=weather>\n{city}\n{close}\n</tool_call>"
    parsed = [{"role": "assistant", **parse_response(call, qwen3_5_template, prefix="")}]
    assert judged(f"So:\n{call}{END}", [WEATHER], [parsed]) == {
        "name": (1.0, ["<function=weather>"]),
        "arguments.city": (1.0, [city]),
        "arguments.days": (0.0, [close]),
        "format": (1.0, [call]),
        "additional": (1.0, [call]),
        "extra_calls": (1.0, []),
    }
    assert judged(call + call + END, [WEATHER], [[*parsed, *parsed]])["extra_calls"] == (0.0, [call])
    assert judged(call + END, [WEATHER], [[{"role": "assistant", "content": call}]])["name"] == (0.0, [call[12:]])


def test_the_end_of_a_thought_in_an_argument_ends_no_thought():
    call = {"name": "f", "arguments": {"text": "</think>"}}
    assert {reward for reward, _ in judged(written(call), [call]).values()} == {1.0}
    mentioned = f"I need a <tool_call> here.</think>{written(call)}"
    assert {reward for reward, _ in judged(mentioned, [call]).values()} == {1.0}


def test_arguments_that_come_again_are_wrong_also_as_null():
    text = '<tool_call>{"name": "clock", "arguments": {"a": 1}, "arguments": null}</tool_call>' + END
    assert judged(text, [CLOCK])["arguments"][0] == 0.0


@pytest.mark.parametrize(
    ("function", "option", "needed"),
    [
        (partial(json_fields, fold=False), "fold", {"truth": ["{}"]}),
        (partial(tool_call_fields, ordered=False), "ordered", {"calls": [[]]}),
    ],
)
def test_a_dataset_column_named_like_an_option_is_refused(function, option, needed):
    with pytest.raises(ValueError, match=rf"`{option}` of .* a list of 1, .* column named '{option}'\. Rename"):
        function([""], **needed, **{option: [False]})


VALID = written(WEATHER, CLOCK)
PIECES = [*'"{},[\\1', "<tool_call>", "</tool_call>", "<think>", "</think>", "null", "\ud800"]
MUTATED = st.builds(
    lambda at, cut, new: VALID[:at] + "".join(new) + VALID[at + cut :],
    st.integers(0, len(VALID)),
    st.integers(0, 15),
    st.lists(st.sampled_from(PIECES), max_size=3),
)


@given(
    MUTATED | st.text(max_size=50) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.sampled_from([[], [CLOCK], [WEATHER, CLOCK], [WEATHER, WEATHER, CLOCK]]),
    st.booleans(),
)
def test_any_text_is_judged_by_the_same_criteria_with_places_inside_it(text, expected, ordered):
    assert set(judged(text, expected, ordered=ordered)) == set(judged(VALID, expected, ordered=ordered))


@given(st.recursive(st.none() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_any_parsed_calls_are_judged(call):
    messages = [{"role": "assistant", "content": None, "tool_calls": [call, {"function": call}]}]
    assert {reward for reward, _ in judged("", [CLOCK, WEATHER], [messages]).values()} <= {0.0, 1.0}


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<tool_call>{", '<tool_call>{"name": "clock"}</tool_call>', "[", '{"a":']
)
def test_long_repetitions_end(piece):
    for text in ((piece * 16000)[:16000], "<tool_call>" + (piece * 16000)[:16000]):
        for ordered in (True, False):
            judged(text, [CLOCK, WEATHER], ordered=ordered)
