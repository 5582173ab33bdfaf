"""`json_fields` on whatever a model writes: against `json.loads`, on mutated JSON, and on hostile text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards import json_fields_reward

from .test_json_fields import END, spans

KEYS = st.sampled_from(["a", "b", "a.b", "", "json", "é"]) | st.text(max_size=3)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([1.0, 0.5, 1e300]) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
REFERENCES = st.dictionaries(KEYS, VALUES, max_size=4) | st.lists(VALUES, max_size=3)
OPTIONS = st.fixed_dictionaries({"fold": st.booleans(), "lists": st.sampled_from(["ordered", "set"])})
PIECES = st.lists(st.sampled_from([*'{}[]",:\\ \n1-.eatrufs', "null", "<think>", "</think>", END, "é", "\ud800"]))

TAILS = ["", END, END + "\n", "\n</s> </s>", "<eos>", "<|a|><|b|>", "<｜end▁of▁sentence｜>"]


def names(found):
    return {span.name for span in found}


@given(st.text() | PIECES.map("".join), REFERENCES, OPTIONS, st.booleans())
def test_any_text_has_the_same_criteria_each_with_a_valid_place(text, truth, options, has_completion):
    right = json.dumps(truth)
    found = spans(text, truth, text if has_completion else None, **options)
    assert names(found) == names(spans(right, truth, **options))
    assert len(found) == len(set(found))
    rewards_by_name = {}
    for span in found:
        assert span.reward == rewards_by_name.setdefault(span.name, span.reward) in (0.0, 1.0)
        assert (span.start is None) == (not text)


@given(REFERENCES, OPTIONS, st.booleans(), st.sampled_from([None, 2]), st.sampled_from(TAILS))
def test_the_references_own_json_earns_1_by_every_criterion(truth, options, ascii_only, indent, tail):
    text = json.dumps(truth, ensure_ascii=ascii_only, indent=indent)
    if "<" not in text:
        assert {span.reward for span in spans(text + tail, truth, text, **options)} == {1.0}
        assert {span.reward for span in spans(text + tail, json.dumps(truth), **options)} == {1.0}


MISSING = object()


def leaves(reference, path=()):
    """(path, value) of each leaf."""
    if not isinstance(reference, dict | list) or not reference:
        return [(path, reference)] if path else []
    members = reference.items() if isinstance(reference, dict) else enumerate(reference)
    return [leaf for key, value in members for leaf in leaves(value, (*path, key))]


def member(value, key):
    is_there = isinstance(value, dict) and key in value if isinstance(key, str) else isinstance(value, list)
    return value[key] if is_there and (isinstance(key, str) or key < len(value)) else MISSING


def oracle(found, reference):
    """Whether each leaf of the reference is in what `json.loads` read."""
    right = []
    for path, expected in leaves(reference):
        value = found
        for key in path:
            value = member(value, key)
        right.append(value == expected and isinstance(value, bool) == isinstance(expected, bool))
    return right


def has_more(found, reference):
    """Whether an object or list has members that the reference's does not have."""
    if type(found) is not type(reference) or not isinstance(found, dict | list):
        return False
    keys, theirs = ([*v] if isinstance(v, dict) else [*range(len(v))] for v in (found, reference))
    return not set(keys) <= set(theirs) or any(has_more(found[key], reference[key]) for key in keys if reference[key])


@given(st.data())
def test_rewards_agree_with_json_loads(data):
    reference = data.draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
    answer = data.draw(
        st.dictionaries(st.sampled_from([*reference]) | KEYS, VALUES | st.sampled_from([*reference.values()]))
    )
    text = json.dumps(answer)
    if "<" in text:
        return
    found = [span.reward for name, span in {span.name: span for span in spans(text, reference)}.items()]
    assert found == [*oracle(json.loads(text), reference), 1.0, not has_more(json.loads(text), reference), 1.0]


HOSTILE = ["[", '{"a":', '"', '{"a": "', "\\", '{"a": 1,', "9", "\u0301\u0323", " ", "{ ", "<|", "<|a|> ", "<think>"]


@pytest.mark.parametrize("piece", [*HOSTILE, "\ud800", "\\ud800"])
@pytest.mark.parametrize("fold", [False, True])
def test_no_text_raises_or_hangs(piece, fold):
    many = (piece * 16_000)[:16_000]
    closed = '{"a":' * 900 + "1" + "}" * 900
    for text in (many, f'{{"a": {many}', f'{{"a": "{many}"}}', f'{{"a": 1{many}}}', closed):
        for said in (None, text, " " + text):
            found = spans(text + END, '{"a": "x", "b": [1, 2]}', said, fold=fold)
            assert names(found) == {"a", "b[0]", "b[1]", "json", "additional", "outside"}
        assert json_fields_reward([text], truth=['{"a": "x", "b": [1, 2]}'])[0] < 1.0
