"""One reading of a completion for rewards and places: TRL's messages say what is a call, and the text where."""

import json
import random
import re

import pytest
import trl.chat_template_utils as trl_templates
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_parsing.response_parser import parse_response

from tempo_trl.rewards import json_fields, json_fields_reward, mean_reward, tool_call_fields, tool_call_fields_reward
from tempo_trl.rewards.reading import SampledText, read_completion
from tempo_trl.trainers.span_rewards import checked_spans

from .answers import Letters
from .test_tool_call_fields import CLOCK, END, WEATHER, written

QWEN, QWEN_XML = trl_templates.qwen3_template, trl_templates.qwen3_5_template
XML = "<tool_call>\n<function=weather>\n{}</function>\n</tool_call>" + END
CITY = '{"city": "Rome"}'


def parameter(value, key="city"):
    return f"<parameter={key}>\n{value}\n</parameter>\n"


def message(text, template=QWEN, special=END):
    """A completion's message as TRL's `parse_response` makes it of a text: whole where a call cannot be read."""
    try:
        parsed = parse_response(text, template, prefix="")
        assert all(isinstance(call["function"].get("name"), str) for call in parsed.get("tool_calls", []))
        for call in parsed.get("tool_calls", []):
            call["function"]["arguments"] = call["function"].get("arguments") or {}
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
        parsed = {"content": re.sub(special, "", text)}
    return {"role": "assistant", **parsed, "content": parsed.get("content") or ""}


def judged(function, text, completion, **reference):
    """(reward, characters of each place) of each criterion by name."""
    [spans] = checked_spans(function([text], [completion], **reference), [text], "function")
    found = {}
    for name, reward, start, end in spans:
        found.setdefault(name, (reward, []))[1].extend([] if start is None else [text[start:end]])
    return found


def mean(found):
    return sum(reward for reward, _ in found.values()) / len(found)


def calls(text, *expected, template=QWEN, **options):
    return judged(tool_call_fields, text, [message(text, template)], calls=[[*expected]], **options)


# What is a call, and what it says


def test_prose_behind_a_call_ends_no_thought():
    text = written(WEATHER, end=f" That </think> was it.{END}")
    assert {reward for reward, _ in calls(text, WEATHER).values()} == {1.0}


def test_a_call_ends_at_the_next_tag_and_is_found_in_linear_time():
    one, message = written(WEATHER, end=""), {"role": "assistant", "content": "", "tool_calls": [WEATHER]}
    for before in ("<tool_call>weather ", "<tool_call> x" * 20_000):
        found = judged(tool_call_fields, before + one + END, [message], calls=[[WEATHER]])
        assert found["calls[0].format"] == (1.0, [one])


@pytest.mark.parametrize("first", ["Oslo", "Rome"])
def test_of_a_repeated_argument_the_last_one_counts_which_the_tool_gets(first):
    rome = {"name": "weather", "arguments": {"city": "Rome"}}
    text = written(rome).replace("{", f'{{"city": "{first}", ').replace(f'{{"city": "{first}", ', "{", 1)
    found = calls(text, rome)
    assert found["calls[0].arguments.city"] == (1.0, ['"city": "Rome"'])
    assert mean(found) == 1.0 == tool_call_fields_reward([[message(text)]], calls=[[rome]])[0]
    assert calls(text, {"name": "weather", "arguments": {"city": "Oslo"}})["calls[0].arguments.city"][0] == 0.0


def test_of_a_parameter_that_comes_twice_the_place_is_that_of_the_last_one():
    text = XML.format(parameter("Oslo") + parameter("Rome"))
    found = calls(text, {"name": "weather", "arguments": {"city": "Rome"}}, template=QWEN_XML)
    assert found["calls[0].arguments.city"] == (1.0, ["<parameter=city>\nRome\n</parameter>"])


def test_values_are_those_that_trl_typed():
    text = written({"name": "weather", "arguments": {"days": "3"}})
    typed = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "weather", "arguments": {"days": 3}}}],
    }
    found = judged(tool_call_fields, text, [typed], calls=[[{"name": "weather", "arguments": {"days": 3}}]])
    assert found["calls[0].arguments.days"] == (1.0, ['"days": "3"'])


@pytest.mark.parametrize("content", ["see <tool_call> here", [{"type": "text", "text": "see <tool_call> here"}]])
@pytest.mark.parametrize("role", ["tool", "user"])
@pytest.mark.parametrize("form", ["{}", '"{}"', "[{{'type': 'text', 'text': '{}'}}]"])
def test_what_others_say_is_no_call(role, content, form):
    heard = form.format("see <tool_call> here")
    text = f"{written(WEATHER)}\n<|im_start|>{role}\n{heard}{END}\n<|im_start|>assistant\nIt is warm.{END}"
    completion = [message(written(WEATHER)), {"role": role, "content": content}, message(f"It is warm.{END}")]
    found = judged(tool_call_fields, text, completion, calls=[[WEATHER]])
    assert {reward for reward, _ in found.values()} == {1.0}
    assert read_completion(text, completion).answer.said == "It is warm."


# Where it stands


@pytest.mark.parametrize("before", ["", "<think>\nso\n</think>\n\n", f"<think>\n{CITY}?\n</think>\n\n"])
def test_an_answer_stands_where_it_was_given_and_not_in_the_call_that_repeats_it(before):
    text = before + CITY + "\n" + written({"name": "save", "arguments": json.loads(CITY)})
    [spans] = json_fields([text], [[message(text)]], truth=[CITY])
    assert spans[0] == ("city", 1.0, len(before) + 1, len(before) + 15)
    assert {span.reward for span in spans} == {1.0}
    assert all(span.end <= text.index("<tool_call>") for span in spans)


def test_an_answer_behind_a_call_that_has_it_stands_behind_it():
    text = written({"name": "save", "arguments": json.loads(CITY)}, end="\n" + CITY + END)
    [spans] = json_fields([text], [[message(text)]], truth=[CITY])
    assert spans[0] == ("city", 1.0, text.rindex('"city"'), text.rindex("}"))


def test_thoughts_between_special_tokens_are_thoughts():
    said = 'maybe {"city": "Oslo"}' + CITY  # TRL decodes without special tokens
    text = f'<think>maybe {{"city": "Oslo"}}</think>{CITY}{END}'
    for completion in (said, [{"role": "assistant", "content": said}]):
        found = judged(json_fields, text, completion, truth=[CITY])
        assert mean(found) == 1.0
        assert found["city"] == (1.0, ['"city": "Rome"'])
        assert judged(json_fields, text.replace("</think>", ""), completion, truth=[CITY])["city"][0] == 0.0
    reward = mean_reward(json_fields, Letters())
    assert reward([said], completion_ids=[[*map(ord, text)]], truth=[CITY]) == [1.0]


def test_an_answer_may_be_a_list_of_parts_and_follow_what_a_tool_said():
    text = (
        f"{written(WEATHER)}\n<|im_start|>tool\n{CITY}{END}\n<|im_start|>assistant\n<think>{CITY}?</think>{CITY}{END}"
    )
    parts = [{"type": "text", "text": CITY + "?"}, {"type": "text", "text": CITY}]
    completion = [
        message(written(WEATHER)),
        {"role": "tool", "content": CITY},
        {"role": "assistant", "content": parts},
    ]
    [spans] = json_fields([text], [completion], truth=[CITY])
    assert {span.reward for span in spans} == {1.0}
    assert spans[0].start == text.rindex('"city"')


def test_a_thought_that_does_not_end_is_the_place_of_what_is_missing():
    text = f"<think>\nso{END}"
    unparsed = judged(json_fields, text, text.removesuffix(END), truth=[CITY])
    assert set(map(str, unparsed.values())) == {str((0.0, [text]))}
    parsed = [{"role": "assistant", "reasoning_content": f"so{END}", "content": ""}]
    found = judged(json_fields, text, parsed, truth=[CITY]) | calls(text, WEATHER)
    found.pop("extra_calls")
    assert set(map(str, found.values())) == {str((0.0, [f"so{END}"]))}


def test_the_parts_of_a_completion_are_found_one_behind_the_other():
    turns = ["<think>\n5\n</think>\n\n5\n" + written(WEATHER), f"5{END}"]
    glue = f"\n<|im_start|>user\n<tool_response>\n5\n</tool_response>{END}\n<|im_start|>assistant\n"
    completion = [message(turns[0]), {"role": "tool", "content": "5"}, message(turns[1])]
    found = read_completion(glue.join(turns), completion).segments
    assert [part.kind for part in found] == ["thought", "content", "call", "heard", "content"]
    assert [part.said for part in found if part.kind != "call"] == ["5"] * 4
    assert [part.start for part in found] == sorted(part.start for part in found)


HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"  # Llama's, which writes calls without tags


def dialogue(*said):
    """A text of the policy's turns and what tools answered, by turns, with their places and TRL's messages."""
    text, turns, completion = "", [], []
    for n, each in enumerate(said):
        called, own = isinstance(each, tuple), n % 2 == 0
        spelled, call = each if called else (each, None)
        written = (
            spelled + "<|eot_id|>"
            if own
            else HEADER.format("ipython") + each + "<|eot_id|>" + HEADER.format("assistant")
        )
        turns += [(len(text), len(text) + len(written))] * own
        text += written
        words = (
            {"content": "", "tool_calls": [{"type": "function", "function": call}]} if called else {"content": each}
        )
        completion.append({"role": "assistant" if own else "tool", **words})
    return SampledText(text, turns), completion


def converting(amount, to):
    """A call as a model spells it, and as TRL parses it."""
    arguments = {"amount": json.loads(amount), "to": to}
    spelled = f'{{"name": "convert", "parameters": {{"amount": {amount}, "to": "{to}"}}}}'
    return spelled, {"name": "convert", "arguments": arguments}


def test_a_call_that_is_spelled_in_another_way_than_parsed_is_not_looked_for_in_a_later_turn():
    first, second = converting("1e2", "EUR"), converting("100.0", "GBP")
    text, completion = dialogue(first, '"91.5"', second, '"78"', "91.5 EUR or 78 GBP.")
    found = judged(tool_call_fields, text, completion, calls=[[first[1], second[1]]])
    places = {name: place for name, (_, [*place]) in found.items()}
    assert places["calls[0].arguments.to"] == []
    assert places["calls[1].arguments.to"] == ['convert", "parameters": {"amount": 100.0, "to": "GBP']
    assert text.index(places["calls[1].arguments.to"][0]) > text.index("91.5")


def test_a_call_is_not_looked_for_in_what_a_tool_answers():
    text, completion = dialogue(converting("1e2", "EUR"), 'convert amount 100.0 to EUR is "91.5"', "91.5 EUR.")
    found = judged(tool_call_fields, text, completion, calls=[[converting("100.0", "EUR")[1]]])
    assert found["calls[0].name"] == (1.0, [])


@pytest.mark.parametrize("knows_turns", [True, False])
def test_an_answer_that_repeats_what_the_tool_said_is_the_answer(knows_turns):
    """The template writes the tool's answer as JSON text."""
    text, completion = dialogue(converting("5", "EUR"), json.dumps(CITY), CITY)
    completion[1]["content"] = CITY
    found = json_fields([text if knows_turns else str(text)], [completion], truth=[CITY])[0]
    assert {span.reward for span in found} == {1.0}
    assert found[0].start == text.rindex('"city"')


def test_of_two_equal_calls_in_a_turn_each_has_the_shortest_stretch():
    said = "[find(title='It\\'s'), find(title=\"It's\")]"
    call = {"type": "function", "function": {"name": "find", "arguments": {"title": "It's"}}}
    completion = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    found = judged(tool_call_fields, said, completion, calls=[[call["function"]]])
    assert found["calls[0].name"] == (1.0, ["find(title=\"It's"])


# Expected calls


def test_unordered_calls_are_matched_so_that_most_is_right_in_any_order_of_the_references():
    cities = [{"name": "weather", "arguments": {"city": city, "days": 3}} for city in ("Paris", "Rome", "Oslo")]
    malformed = written(cities[0]).replace("}}", "}} so").removesuffix(END)
    for text in (malformed + written(cities[0]), written(cities[0], end="") + malformed):
        assert mean(judged(tool_call_fields, text, None, calls=[cities[:1]], ordered=False)) == 5 / 6
    text = written(cities[1], {"name": "weather", "arguments": {"city": "Paris", "days": 2}})
    for expected in (cities[:2], cities[1::-1], cities, cities[::-1]):
        found = judged(tool_call_fields, text, None, calls=[expected], ordered=False)
        right = sum(reward for name, (reward, _) in found.items() if "calls[" in name and name != "extra_calls")
        assert right == 5 + 4


def test_of_equal_matches_the_first_calls_count_and_the_first_is_the_first():
    text = written(*[WEATHER] * 4)
    [spans] = tool_call_fields([text], calls=[[WEATHER] * 2], ordered=False)
    starts = [span.start for span in spans if span.name.endswith("format") or span.name == "extra_calls"]
    assert starts == [match.start() for match in re.finditer("<tool_call>", text)]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([{"name": "f", "parameters": {"a": 1}}], "'parameters'"),
        ([{"name": "f", "arguments": {"a": 1}, "kwargs": {}}], "'kwargs'"),
        (json.dumps([{"function": {"name": "f", "arguments": {}}, "arguments": {"a": 1}}]), "'arguments'"),
        ([{"name": "f", "arguments": ["a"]}], r"the arguments of 'f' are \['a'\]"),
        ([{"name": "f", "arguments": "[]"}], r"the arguments of 'f' are \[\]"),
        ([{"arguments": {}}], "expected the text of a name"),
        ({"name": "f"}, "it is a dict, not a list"),
        ("{", "is '{', expected a list of calls"),
        ("[" * 100_000, "expected a list of calls"),
    ],
)
def test_expected_calls_of_another_form_are_errors_that_name_key_and_row(cell, message):
    with pytest.raises(ValueError, match=f"row 1 of this call's column 'calls' .*{message}"):
        tool_call_fields(["", ""], calls=[[], cell])


def test_keys_without_a_value_and_those_of_messages_are_no_other_form():
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": {}, "parameters": None}}
    assert tool_call_fields([""], calls=[[call]]) == tool_call_fields([""], calls=[[{"name": "f"}]])


def test_without_a_reference_nothing_is_judged():
    assert json_fields([CITY, CITY], truth=[None, CITY])[0] == []
    assert tool_call_fields([written(CLOCK)] * 2, calls=[None, [CLOCK]])[0] == []
    assert json_fields_reward([CITY] * 2, truth=[None, CITY]) == [None, 1.0]
    assert tool_call_fields_reward([written(CLOCK)] * 2, calls=[[CLOCK], None]) == [1.0, None]


# TRL's chat templates

TEMPLATES = {
    name.removesuffix("_chat_template"): template
    for name, template in vars(trl_templates).items()
    if name.endswith("_chat_template") and isinstance(template, str) and "training" not in name
}
WITHOUT_CALLS = {"cohere", "cohere2", "deepseekv3", "diffusion_gemma", "gemma", "gemma3", "idefics3", "lfm2", "llama3"}
WITHOUT_CALLS |= {"llava_next", "muse_glimmer", "phi3", "phi3_5", "qwen2_5_vl", "smolvlm", "deepseek_r1_distill"}
PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "?", "parameters": PARAMETERS}}]
WORDS = "Let me see the weather in a city: Paris, days 3."  # those of the call
CALLING = {"role": "assistant", "content": WORDS, "tool_calls": [{"type": "function", "function": WEATHER}]}
HEARD = {"role": "tool", "name": "weather", "content": "see <tool_call> here"}
SAID = {"role": "assistant", "content": "Paris is warm."}


def rendered(template, turns):
    """The text of a dialogue behind its prompt, and its messages as TRL parses them."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<eos>", bos_token="<bos>")
    tokenizer.chat_template = template
    schema = trl_templates.add_response_schema(tokenizer).response_template

    def render(upto, prompt):
        history = [{"role": "user", "content": "How is it?"}, *turns[:upto]]
        return tokenizer.apply_chat_template(history, tools=TOOLS, tokenize=False, add_generation_prompt=prompt)

    text, completion, own = "", [], []
    for n, turn in enumerate(turns):
        is_said = turn["role"] == "assistant"
        before, after = render(n, is_said), render(n + 1, not is_said)
        same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1), len(before))
        own += [(len(text), len(text) + len(after) - same)] * is_said
        text += after[same:]
        parsed = parse_response(after[same:], schema, prefix=before[:same], tools=TOOLS) if is_said else turn
        completion.append({"role": "assistant", "content": "", **parsed})
    return SampledText(text, own), completion


@pytest.mark.parametrize("knows_turns", [True, False])
@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - WITHOUT_CALLS))
def test_each_template_of_trl_is_read(name, knows_turns):
    has_words = not name.startswith(("llama", "gptoss"))  # beside a call
    calling = CALLING | ({"reasoning_content": "hm", "thinking": "hm"} if has_words else {"content": ""})
    turns = [calling] if name.startswith("gemma4") else [calling, HEARD, SAID]  # it writes answers into calls
    text, completion = rendered(TEMPLATES[name], turns)
    text = text if knows_turns else str(text)
    reading = read_completion(text, completion)
    [call] = reading.calls
    assert json.loads(call.parsed) == WEATHER
    assert all(piece in text[call.start : call.end] for piece in ("weather", "city", "Paris", "days", "3"))
    assert WORDS not in text[call.start : call.end] and not WORDS.endswith(text[call.start : call.end])
    assert reading.answer.said == completion[-1]["content"] == turns[-1]["content"]
    for part in reading.segments:
        assert part.kind == "call" or "".join(text[at] for at in part.at[:-1]) == part.said
    found = judged(tool_call_fields, text, completion, calls=[[WEATHER]])
    assert {reward for reward, _ in found.values()} == {1.0}
    assert all(places for criterion, (_, places) in found.items() if criterion != "extra_calls")


# Any text

VALID = [
    (QWEN, "<think>\nso\n</think>\n\nSure.\n" + written(WEATHER, CLOCK)),
    (QWEN, CITY + "\n" + written(WEATHER)),
    (QWEN_XML, "So:\n" + XML.format(parameter("Paris") + parameter(3, "days"))),
    (QWEN_XML, "<think>\n<tool_call>\n</think>\n\n" + CITY + XML.format(parameter(CITY))),
]
PIECES = [*'"{},[\\1', "<tool_call>", "</tool_call>", "<think>", "</think>", "null", '"city": "Rome", ', CITY, " so "]
PIECES += ["<parameter=city>\n", "\n</parameter>", "</function>", "<function=weather>", END]


def edited(seed):
    """A template, and a text with calls after up to three edits."""
    draw = random.Random(seed)
    template, text = draw.choice(VALID)
    for _ in range(draw.randrange(4)):
        at, new = (
            draw.randrange(len(text) + 1),
            draw.choice([draw.choice(PIECES), "", text[draw.randrange(len(text)) :][:30]]),
        )
        text = text[:at] + new + text[at + draw.choice([0, 0, 1, 8]) :]
    return template, text


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 1500), marks=pytest.mark.matrix)])
def test_rewards_are_the_means_of_the_spans_after_random_edits(seeds):
    """Reward, and mean of the spans, agree with and without the text, and with the token ids."""
    for seed in seeds:
        template, text = edited(seed)
        completion = [message(text, template, re.escape(END))]
        references = {"truth": [CITY], "calls": [[WEATHER, CLOCK]]}
        for function, reward in ((json_fields, json_fields_reward), (tool_call_fields, tool_call_fields_reward)):
            found = mean(judged(function, text, completion, **references))
            assert reward([completion], **references) == [found], (seed, text)
            with_ids = reward.with_tokenizer(Letters())
            assert with_ids([completion], completion_ids=[[*map(ord, text)]], **references) == [found], (seed, text)
