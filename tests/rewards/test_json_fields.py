"""Each leaf of a reference, and its place in the answer, counted by hand."""

import json

import pytest

from tempo_trl.rewards import SpanReward, json_fields

END = "<|im_end|>"


def spans(text, truth, said=None, **options):
    [found] = json_fields([text], None if said is None else [said], truth=[truth], **options)
    assert all(span.start is None or 0 <= span.start < span.end <= len(text) for span in found)
    return found


def verdicts(text, truth, said=None, **options):
    """(reward, the characters of each place) of each criterion by name."""
    found = {}
    for name, reward, start, end in spans(text, truth, said, **options):
        known = found.setdefault(name, (reward,))
        assert known[0] == reward
        found[name] = (*known, None if start is None else text[start:end])
    return found


def rewards(text, truth, **options):
    return {span.name: span.reward for span in spans(text, truth, **options)}


# Places


def test_offsets_counted_by_hand():
    #                 1         2         3
    #       0123456789012345678901234567890123456789
    text = 'Sure: {"city": "Paris", "n": 3}<|im_end|>'  # 41 characters
    truth = '{"city": "Rome", "n": 3, "express": true}'
    assert spans(text, truth) == [
        SpanReward("city", 0.0, 7, 22),
        SpanReward("n", 1.0, 24, 30),
        SpanReward("express", 0.0, 30, 31),
        SpanReward("json", 1.0, 6, 31),
        SpanReward("additional", 1.0, 30, 31),
        SpanReward("outside", 0.0, 0, 6),
    ]


def test_characters_are_counted_not_bytes():
    text = '{"🙂": "é👩‍🚀", "b": 1}'  # the astronaut has 3 characters: 8 to 11
    assert spans(text, {"🙂": "é👩‍🚀", "b": 1})[:2] == [SpanReward("🙂", 1.0, 1, 12), SpanReward("b", 1.0, 14, 20)]


def test_a_right_answer_was_decided_by_each_value_by_closing_and_by_stopping():
    text = '{"a": {"b": 1}, "c": ["x", {"d": null}]}' + END
    assert verdicts(text, '{"a": {"b": 1}, "c": ["x", {"d": null}]}') == {
        "a.b": (1.0, '"b": 1'),
        "c[0]": (1.0, '"x"'),
        "c[1].d": (1.0, '"d": null'),
        "json": (1.0, text.removesuffix(END)),
        "additional": (1.0, "}", "}", "]", "}"),
        "outside": (1.0, "{", END),
    }


def test_what_is_missing_was_decided_by_the_bracket_that_closed_its_object_or_list():
    text = '{"a": {"b": 1 }, "l": [1 ]}' + END
    found = spans(text, '{"a": {"b": 1, "c": 2}, "l": [1, 2], "o": {"x": 1, "y": 2}}')
    places = {span.name: (span.start, text[span.start : span.end]) for span in found if not span.reward}
    assert places == {"a.c": (14, "}"), "l[1]": (25, "]"), "o.x": (26, "}"), "o.y": (26, "}")}


def test_another_kind_of_value_than_an_object_or_a_list_decides_all_leaves_in_it():
    found = verdicts('{"a": "Lyon", "l": {"0": 1}}', '{"a": {"b": 1, "c": {"d": 2}}, "l": [1, 2]}')
    assert found["a.b"] == found["a.c.d"] == (0.0, '"a": "Lyon"')
    assert found["l[0]"] == found["l[1]"] == (0.0, '"l": {"0": 1}')


def test_the_first_additional_key_or_element_is_the_place_of_additional():
    assert verdicts('{"a": 1, "b": [2], "c": 3}', '{"a": 1}')["additional"] == (0.0, '"b": [2]')
    assert verdicts('{"a": {"x": 1, "y": 2}, "c": 3}', '{"a": {"x": 1}}')["additional"] == (0.0, '"y": 2')
    assert verdicts('{"a": [1, {"b": 2}, 3]}', '{"a": [1]}')["additional"] == (0.0, '{"b": 2}')


def test_a_key_that_comes_again_is_additional_and_its_leaves_are_wrong():
    text = '{"a": {"x": 1}, "b": 2, "a": {"x": 1}}'
    found = verdicts(text, '{"a": {"x": 1}, "b": 2}')
    assert found["a.x"] == found["additional"] == (0.0, '"a": {"x": 1}')
    assert found["b"] == (1.0, '"b": 2')
    assert spans(text, '{"a": {"x": 1}, "b": 2}')[0].start == 24


def test_text_outside_has_two_places():
    text = 'Here:\n```json\n{"a": 1}\n```\nDone.' + END
    found = verdicts(text, '{"a": 1}')
    assert found["outside"] == (0.0, "Here:\n```json\n", "```\nDone." + END)
    assert found["json"] == (1.0, '{"a": 1}')
    assert verdicts('{"a": 1} {"a": 1}', '{"a": 1}')["outside"] == (0.0, '{"a": 1}')
    assert verdicts(' \n{"a": 1}\n ' + END, '{"a": 1}')["outside"] == (1.0, "{", "\n " + END)


def test_stopping_has_no_tokens_of_its_own_if_the_text_ends_with_the_object():
    assert verdicts('{"a": 1}', '{"a": 1}')["outside"] == (1.0, "{", "}")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": 1, "b": 2 "c": 3}', '"c": 3}'),
        ('{"a": 1, "b": 2, c: 3}', "c: 3}"),
        ('{"a": 1, "b": 2, }', "}"),
        ('{"a": 1, "b": 2, "c": "x', '"x'),
        ('{"a": 1, "b": 2, "c": 3', "3"),
        ('{"a": 1, "b": 2, "c": 03}', "03}"),
        ('{"a": 1, "b": 2, "c": 3.}', "3.}"),
        ('{"a": 1, "b": 2, "c": 0x3}', "0x3}"),
        ('{"a": 1, "b": 2, "c": {"d": NaN}}', "NaN}}"),
        ('{"a": 1, "b": 2, "c": ' + "[" * 5000, "[" * (5000 - 64)),
        ('{"a": 1, "b": 2, "c": "\\x"}', '\\x"}'),
    ],
)
def test_leaves_before_an_error_keep_their_reward_and_the_rest_is_0_from_the_error_on(text, rest):
    found = verdicts(text + END, '{"a": 1, "b": 5, "c": 3}', text)
    assert (found["a"], found["b"]) == ((1.0, '"a": 1'), (0.0, '"b": 2'))
    assert {found[name] for name in ("c", "json", "additional", "outside")} == {(0.0, rest + END)}


def test_an_answer_cut_off_between_tokens_is_decided_by_its_end():
    assert verdicts('{"a": 1,' + END, '{"a": 1, "b": 2}')["b"] == (0.0, END)
    assert verdicts('{"a": 1,', '{"a": 1, "b": 2}')["b"] == (0.0, ",")


NO_OBJECT = [("", None), (END, END), ("I cannot do that." + END, "I cannot do that." + END), ('"a"', '"a"')]
NO_OBJECT += [('<think>{"a": 1}' + END, '<think>{"a": 1}' + END), ("[1]", "[1]")]


@pytest.mark.parametrize(("text", "place"), NO_OBJECT)
def test_an_answer_without_an_object_is_wrong_as_a_whole(text, place):
    assert set(verdicts(text, '{"a": 1, "b": {"c": 2}}').values()) == {(0.0, place)}


def test_the_thinking_before_an_answer_is_neither_read_nor_outside():
    text = '<think>{"a": 2}? No.</think>\n\n{"a": 1}' + END
    assert verdicts(text, '{"a": 1}') == {
        "a": (1.0, '"a": 1'),
        "json": (1.0, '{"a": 1}'),
        "additional": (1.0, "}"),
        "outside": (1.0, "{", END),
    }
    assert spans(text, '{"a": 1}')[0].start == text.rindex('"a"')
    assert spans(text, '{"a": 1}') == spans(text, '{"a": 1}', text.removesuffix(END))


def test_once_a_thought_has_ended_its_opening_tag_is_text():
    found = verdicts('<think>so</think>{"tag": "<think>"}' + END, '{"tag": "<think>"}')
    assert {reward for reward, *_ in found.values()} == {1.0}


# The answer in its text


def test_the_last_assistant_message_is_found_in_the_text_of_an_agent():
    calls = '{"a": 1}<|im_end|>\n<|im_start|>user\n{"a": 1}<|im_end|>\n<|im_start|>assistant\n'
    messages = [{"role": "assistant", "content": '{"a": 1}'}, {"role": "tool", "content": '{"a": 1}'}]
    said = [*messages, {"role": "assistant", "content": '{"a": 2}'}]
    assert spans(calls + '{"a": 2}' + END, '{"a": 2}', said)[0] == SpanReward("a", 1.0, len(calls) + 1, len(calls) + 7)


@pytest.mark.parametrize("space", ["", " "])
def test_an_answer_that_a_tool_repeats_after_it_is_found_where_it_was_given(space):
    heard = [{"role": "tool", "content": content} for content in ('{"a": 1} or {"a": 1}', None, '{"a": 1}')]
    text = '{"a"' + space + ": 1}<|im_end|>" + "".join(f"tool\n{message['content']}<|im_end|>" for message in heard)
    said = [{"role": "assistant", "content": '{"a": 1}'}, *heard]
    assert spans(text, '{"a": 1}', said)[0] == SpanReward("a", 1.0, 1, 7 + len(space))


def test_an_answer_is_found_in_a_text_with_special_tokens_and_other_white_space_in_it():
    text = '{"a" : 1,  "b": "x y" }<|im_end|>\n<|im_start|>user\nMore!<|im_end|>'
    said = '{"a": 1, "b": "x y"}\nuser\nMore!'
    assert verdicts(text, '{"a": 1, "b": "x y"}', said) == {
        "a": (1.0, '"a" : 1'),
        "b": (1.0, '"b": "x y"'),
        "json": (1.0, '{"a" : 1,  "b": "x y" }'),
        "additional": (1.0, "}"),
        "outside": (0.0, "user\nMore!<|im_end|>"),
    }
    assert verdicts('{"a": 1}<|x|>' + END, '{"a": 1}', '{"a": 1} ')["outside"] == (1.0, "{", "<|x|>" + END)


def test_an_answer_that_is_not_in_its_text_is_graded_without_places():
    found = verdicts("something else", '{"a": 1, "b": 2}', '{"a": 1}')
    assert found == dict.fromkeys(("a", "json", "additional", "outside"), (1.0, None)) | {"b": (0.0, None)}


# Values


COMPARED = [("3", "3.0", True), ("9007199254740993", "9007199254740992.0", False), ('"\\u0050aris"', '"Paris"', True)]
COMPARED += [("[]", "{}", False), ("1e999", "1", False), ("9" * 5000, "1", False), ("[" * 500 + "]" * 500, "1", False)]
COMPARED += [('"\\ud800"', '"x"', False)]


@pytest.mark.parametrize(("value", "truth", "is_right"), COMPARED)
def test_values_are_equal_as_in_json(value, truth, is_right):
    for lists in ("ordered", "set"):
        assert rewards(f'{{"a": {value}}}', f'{{"a": {truth}}}', lists=lists)["a"] == is_right


@pytest.mark.parametrize("value", [" PARIS  Île", "paris\\u00a0i\u0302le", "Ｐａｒｉｓ île", "pari\u017f\\tîle"])
def test_folded_strings_ignore_case_white_space_and_compatibility_forms(value):
    text = f'{{"a": "{value}", "b": ["{value}"]}}'
    exact, fold = ({"fold": fold, "lists": "set"} for fold in (False, True))
    assert rewards(text, {"a": "Paris île", "b": ["Paris île"]}, **fold)["a"] == 1.0
    assert rewards(text, {"a": "Paris île", "b": ["Paris île"]}, **fold)["b"] == 1.0
    assert rewards(text, {"a": "Paris île", "b": ["Paris île"]}, **exact)["a"] == 0.0
    assert rewards('{"a": "Pariss île"}', {"a": "Paris île"}, fold=True)["a"] == 0.0
    assert rewards('{"A": "x"}', {"a": "x"}, fold=True)["a"] == 0.0  # keys are exact


SETS = [('["b", "a", "a"]', True), ('["a", "a", "b"]', True), ('["a", "b"]', False), ('["a", "b", "b"]', False)]
SETS += [('["a", "a", "b", "c"]', False), ('"aab"', False)]


@pytest.mark.parametrize(("found", "is_right"), SETS)
def test_a_list_as_a_set_is_one_criterion_in_any_order_that_counts_its_elements(found, is_right):
    text = f'{{"l": {found}}}'
    judged = verdicts(text, '{"l": ["a", "b", "a"]}', lists="set")
    assert list(judged) == ["l", "json", "additional", "outside"]
    assert judged["l"] == (float(is_right), text[1:-1])


def test_sets_of_objects_and_lists_are_compared_whole():
    truth = '[{"x": 1, "y": [1, 2]}, [true, null]]'
    assert set(rewards('[[null, true], {"y": [2, 1.0], "x": 1}]', truth, lists="set").values()) == {1.0}
    assert rewards('[[null, 1], {"y": [2, 1], "x": 1}]', truth, lists="set")["$"] == 0.0
    assert rewards('[[null, true], {"y": [2, 1], "x": 1, "z": 0}]', truth, lists="set")["$"] == 0.0
    assert rewards('[[null, true], {"y": [2, 1], "x": 1, "x": 1}]', truth, lists="set")["$"] == 0.0


# References


def test_every_leaf_has_a_name_of_its_own():
    truth = {"a.b": 1, "a": {"b": 2, "": 3}, "l": [4, [5]], "json": 6, "x": {"json": 7}, "first name": 8, 'l["': 9}
    names = [span.name for span in spans(json.dumps(truth), truth)]
    leaves = ['["a.b"]', "a.b", 'a[""]', "l[0]", "l[1][0]", '["json"]', "x.json", "first name", '["l[\\""]']
    assert list(dict.fromkeys(names)) == [*leaves, "json", "additional", "outside"]


MALFORMED = [("Paris", "no object or array"), ('"Paris"', "no object or array"), (5, "no object or array")]
MALFORMED += [(cut, "cannot be read from character") for cut in ("{", "[1, 2", '{"city": "Par')]
MALFORMED += [('{"a": NaN}', "from character 6 on"), ('{"a": {"b": 1, "b": 1}}', "repeats a key"), ("{} {}", "2 on")]
MALFORMED += [("[" * 70 + "]" * 70, "more than 64 deep"), ("[" * 9000 + "]" * 9000, "cannot be read")]
MALFORMED += [('[[{"a": 1e999}]]', "not finite"), ({"a": {1, 2}}, "not JSON serializable")]


@pytest.mark.parametrize(("truth", "why"), MALFORMED)
def test_a_malformed_reference_names_its_row_what_was_got_and_what_is_expected(truth, why):
    with pytest.raises(ValueError, match=rf"^row 1 of this call's column 'gold' is .*JSON object or array.*{why}"):
        json_fields(["{}", "{}"], column="gold", gold=["{}", truth])


def test_an_unknown_column_or_option_is_an_error():
    with pytest.raises(ValueError, match="no column 'gold', only truth, prompts"):
        json_fields(["{}"], ["{}"], column="gold", truth=["{}"], prompts=[""])
    with pytest.raises(ValueError, match='`lists` is \'sorted\', expected "ordered" or "set"'):
        json_fields(["{}"], lists="sorted", truth=["{}"])
