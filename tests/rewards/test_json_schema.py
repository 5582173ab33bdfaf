"""`json_schema`: twenty answers judged by hand, against an oracle that knows its pieces, and what must not hang."""

import json
import logging
import random
from functools import partial

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from tempo_trl.rewards import SpanReward, json_schema, json_schema_reward, mean_reward
from tempo_trl.rewards.grader import undecided

END = "<|im_end|>"


class Maker(BaseModel):
    name: str
    city: str | None = None


class Product(BaseModel, extra="forbid"):
    name: str = Field(pattern="^M[a-z]+$")
    price: int = Field(ge=40, le=55)
    colours: list[str] = Field(min_length=2, max_length=2)
    maker: Maker | None = None
    stock: bool = False


PRODUCT = Product.model_json_schema()
NAMES = ["name", "price", "colours", "maker", "stock", "json", "additional", "outside"]
RIGHT = '{"name": "Mug", "price": 41, "colours": ["red", "blue"]}'


def judged(text, schema, **options):
    [spans] = json_schema([text], schema=schema, **options)
    return spans


def wrong(text, schema=PRODUCT):
    """The places of the criteria that are wrong, as their text."""
    spans = judged(text, schema)
    assert [*dict.fromkeys(span.name for span in spans)] == NAMES
    found = {}
    for span in spans:
        if not span.reward:
            found.setdefault(span.name, []).append(text[span.start : span.end])
    return found


def cut(place):
    """What is wrong where an error leaves all but the first two properties open."""
    return {name: [place] for name in NAMES[2:]}


@pytest.mark.parametrize(
    "text, expected",
    [
        (RIGHT, {}),
        (RIGHT + END, {}),
        (f"<think>{{}}</think>\n{RIGHT}{END}", {}),
        (RIGHT.replace("}", ', "stock": true, "maker": null}'), {}),
        (RIGHT.replace("}", ', "maker": {"name": "Ann", "city": null, "x": 1}}'), {}),  # Maker forbids nothing
        (RIGHT.replace("41", "4.1e1"), {}),  # a whole number, however it is written
        (RIGHT.replace("Mug", "Cup"), {"name": ['"name": "Cup"']}),
        (RIGHT.replace("41", "56"), {"price": ['"price": 56']}),
        (RIGHT.replace("41", '"41"'), {"price": ['"price": "41"']}),
        (RIGHT.replace("41", "true"), {"price": ['"price": true']}),
        (RIGHT.replace('"price": 41, ', ""), {"price": ["}"]}),
        (RIGHT.replace("price", "prise"), {"price": ["}"], "additional": ['"prise": 41']}),
        (RIGHT.replace('"blue"', "1"), {"colours": ["1"]}),
        (RIGHT.replace('"red", "blue"', "1, 2, 3"), {"colours": ["1", "2", "3", '"colours": [1, 2, 3]']}),
        (RIGHT.replace("}", ', "maker": {"city": "Rome"}}'), {"maker": ['"maker": {"city": "Rome"}']}),
        (RIGHT.replace("}", ', "price": 42}'), {"price": ['"price": 42'], "additional": ['"price": 42']}),
        (f"Here: {RIGHT} Good?{END}", {"outside": ["Here: ", f"Good?{END}"]}),
        (RIGHT[:-12], cut('"re')),
        ('{"name": "Mug", "price": 4' + END, {name: ["4" + END] for name in NAMES[1:]}),
        ("No." + END, {name: ["No." + END] for name in NAMES}),
    ],
)
def test_answers_judged_by_hand(text, expected):
    assert wrong(text) == expected


ORDER = {
    "$defs": {"address": {"properties": {"street": {"type": "string"}, "no": {}}, "required": ["street"]}},
    "properties": {
        "to": {"type": "object", "allOf": [{"$ref": "#/$defs/address"}]},
        "a.b": {"enum": [1]},
        "note": {"$ref": "#"},
    },
    "required": ["to", "code"],
}


def rewards(text, schema):
    return {span.name: span.reward for span in judged(text, schema)}


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"to": {"street": "x"}, "code": 0}', set()),
        ('{"to": {"no": 1}, "code": 0}', {"to.street"}),
        ('{"to": {"street": 1, "no": 1}, "code": 0}', {"to.street"}),
        # What should hold a property is missing, or of another kind: the property is as wrong.
        ('{"to": "x", "code": 0}', {"to", "to.street", "to.no"}),
        ('{"a.b": 2}', {"to", "to.street", "to.no", "code", '["a.b"]'}),
        # A schema that leads back to itself belongs to the property that does.
        ('{"to": {"street": "x"}, "code": 0, "note": {"to": {"street": "x"}}}', {"note"}),
    ],
)
def test_nested_properties_are_criteria_by_their_path(text, expected):
    found = rewards(text, ORDER)
    assert [*found] == ["to", "to.street", "to.no", '["a.b"]', "note", "code", "json", "additional", "outside"]
    assert {name for name, reward in found.items() if not reward} == expected


@pytest.mark.parametrize(
    "schema, right, other",
    [
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", '[1, "2"]'),
        ({"type": "object", "minProperties": 1}, '{"a": 1}', "{}"),
        ({"additionalProperties": {"type": "integer"}}, '{"a": 1}', '{"a": ""}'),
        ({"type": ["array", "object"], "uniqueItems": True}, "[1, 2]", "[1, 1]"),
        ({"type": ["array", "object"], "unevaluatedItems": False}, "[]", "[1]"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a": 1, "b": 2}', '{"a": 1}'),
    ],
)
def test_what_is_asked_of_the_whole_is_a_criterion_if_anything_is(schema, right, other):
    assert rewards(right, schema) == dict.fromkeys(["$", "json", "additional", "outside"], 1.0)
    assert rewards(other, schema) == {"$": 0.0, "json": 1.0, "additional": 1.0, "outside": 1.0}
    plain = {"title": "All", "type": "object", "additionalProperties": True}
    assert rewards('{"a": 1, "a": 2}', plain) == {"json": 1.0, "additional": 0.0, "outside": 1.0}


# Against an oracle


FIELDS = {"name": {"pattern": "^M"}, "price": {"type": "integer"}, "tags": {"maxItems": 1}, "stock": {"const": True}}
FLAT = {"properties": FIELDS, "required": ["name", "price"], "additionalProperties": False}
VALUES = ["Mug", "Cup", 4, 4.5, [], ["a", "b"], True, None, {"a": 1}]


@pytest.mark.parametrize("seed", range(60))
def test_rewards_and_places_are_those_of_the_pieces_that_a_text_is_made_of(seed):
    rng = random.Random(seed)
    keys = rng.sample([*FIELDS, "more"], rng.randint(0, 5))
    text, places, right = rng.choice(["", "\n", "So: "]) + "{", {}, {}
    for key in keys:
        value, start = rng.choice(VALUES), len(text)
        text += f"{json.dumps(key)}:{rng.choice(['', ' '])}{json.dumps(value)}"
        places[key] = start, len(text)
        right[key] = key in FIELDS and Draft202012Validator(FIELDS[key]).is_valid(value)
        text += ", " if key != keys[-1] else ""
    closer = len(text), len(text) + 1
    expected = [
        SpanReward(key, float(right.get(key, key not in ("name", "price"))), *places.get(key, closer))
        for key in FIELDS
    ]
    expected.append(SpanReward("additional", float("more" not in keys), *places.get("more", closer)))
    found = judged(text + "}" + END, FLAT)
    assert [span for span in found if span.name in (*FIELDS, "additional")] == expected


@pytest.mark.parametrize("seed", range(40))
def test_the_reward_of_an_edited_answer_is_the_mean_of_its_criteria(seed):
    rng, text = random.Random(seed), RIGHT.replace("}", ', "maker": {"name": "Ann"}, "stock": true}')
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", *'{}[]",: 1aM']) + text[at + rng.randint(0, 2) :]
    found = rewards(text, PRODUCT)
    assert [*found] == NAMES
    [reward] = mean_reward(partial(json_schema, schema=PRODUCT))([text])
    assert reward == pytest.approx(sum(found.values()) / len(found))
    [reward] = json_schema_reward([text], schema=[json.dumps(PRODUCT)])
    assert reward == pytest.approx(sum(found.values()) / len(found))
    try:
        is_valid = Draft202012Validator(PRODUCT).is_valid(json.loads(text))
    except json.JSONDecodeError:
        is_valid = False
    assert reward < 1.0 or is_valid


# Schemas


def test_the_schema_is_a_column_of_texts_or_objects_or_one_for_all_rows():
    texts, schemas = [RIGHT, RIGHT, "{}", RIGHT], [PRODUCT, json.dumps(PRODUCT), {}, None]
    by_column = json_schema(texts, schema=schemas)
    assert by_column == json_schema(texts, column="shape", shape=schemas)
    assert by_column[0] == by_column[1] == judged(RIGHT, json.dumps(PRODUCT))
    assert by_column[3] == []
    assert [span.name for span in by_column[2]][:2] == ["json", "additional"]


DRAFT_3 = "http://json-schema.org/draft-03/schema#"
NUMBERS, OBJECT = {"type": "array", "items": {"type": "integer"}}, {"type": "object"}


@pytest.mark.parametrize(
    "schema, text, expected",
    [
        ({"anyOf": [NUMBERS, {"type": "array", "items": {"type": "string"}}]}, "Sure: [1, 2]", 1.0),
        ({"anyOf": [NUMBERS, {"type": "null"}]}, "[1, {}]", 0.0),
        ({"type": ["array", "null"]}, "[1, 2]", 1.0),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"oneOf": [NUMBERS, OBJECT]}}}, "[1]", 1.0),
        ({"oneOf": [NUMBERS, OBJECT]}, '{"a": [1.5]}', 1.0),
        ({"const": [1]}, "[1]", 1.0),
        ({"items": {"type": "integer"}}, "[1, 2]", 1.0),
        ({"required": ["a"]}, '[see] {"a": 1}', 1.0),  # it names a property
    ],
)
def test_the_json_begins_at_the_first_bracket_of_a_kind_that_the_schema_allows(schema, text, expected):
    by_name = {span.name: span for span in judged(text, schema)}
    assert by_name["json"].reward == 1.0
    assert by_name["$" if "$" in by_name else "a"].reward == expected


@pytest.mark.parametrize(
    "schema, message",
    [
        ("{", "Expecting property name"),
        ("[1]", "it is of type list"),
        ({"type": "string"}, "neither an object nor a list"),
        ({"type": ["string", "integer"]}, "neither an object nor a list"),
        ({"enum": [1, "a"]}, "neither an object nor a list"),
        ({"properties": {"a": {"type": "text"}}}, "'text' is not valid under any of the given schemas"),
        ({"properties": {"a": {"pattern": "("}}}, "'\\(' is not a 'regex'"),
        (
            {"properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "'https://example.com/a.json' leads out of it",
        ),
        ({"anyOf": [{"$ref": "#/$defs/A"}]}, "'#/\\$defs/A' leads out of it"),
        ({"name": "order", "description": "An order", "schema": PRODUCT}, "none of its keywords asks for anything"),
        ({"$schema": DRAFT_3, "properties": {"a": {"required": True}}}, "must be an iterable, not bool"),
        ({"properties": {"a": False}}, "its property 'a' is false"),
        ({"properties": {"a": {"unevaluatedProperties": False}}}, "it has `unevaluatedProperties`.*additionalProp"),
    ],
)
def test_a_schema_that_is_not_valid_or_leads_out_of_itself_is_an_error_with_its_row(schema, message):
    with pytest.raises(
        ValueError, match=f"row 1 of this call's column 'schema' is .* expected a JSON schema.*{message}"
    ):
        json_schema(["{}", "none"], schema=[{}, schema])


def test_a_missing_column_is_an_error():
    with pytest.raises(ValueError, match="json_schema got no column 'schema', only truth"):
        json_schema(["{}"], truth=["{}"])


# What must not hang, nor end a step


def deep(depth):
    return '{"properties": {"a": ' * depth + "{}" + "}}" * depth


@pytest.mark.parametrize(
    "text, schema",
    [
        pytest.param('{"a": "%s!"}' % ("a" * 40), {"properties": {"a": {"pattern": "^(a+)+$"}}}, id="pattern"),
        pytest.param("{}", deep(1000), id="deep schema"),
        pytest.param('{"a": 1}', {"allOf": [{"$ref": "#"}]}, id="circle"),
        pytest.param('{"a": 1e400}', {}, id="number"),
        pytest.param('{"a":' * 400 + "{}" + "}" * 400, {"additionalProperties": {"$ref": "#"}}, id="deep answer"),
    ],
)
def test_what_takes_too_long_or_is_too_deep_is_not_judged_and_said_once(text, schema, caplog):
    undecided.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert json_schema([text, RIGHT], schema=[schema, PRODUCT]) == [[], judged(RIGHT, PRODUCT)]
        assert json_schema_reward([text], schema=[schema]) == [None]
    assert caplog.text.count("json_schema did not judge an answer") == 1


@pytest.mark.parametrize(
    ("value", "step", "right"), [("19.99", 0.01, 1), ("0.075", 0.01, 0), ("1e300", 5, 1), ("7", 5, 0)]
)
def test_multiples_are_those_of_decimals(value, step, right):
    assert rewards(f'{{"a": {value}}}', {"properties": {"a": {"multipleOf": step}}})["a"] == right


def test_multiples_are_those_of_decimals_behind_a_reference_too():
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= {"properties": {"a": {"multipleOf": 0.01}, "inner": {"$ref": "#"}}}
    assert set(rewards('{"a": 19.99, "inner": {"a": 19.99}}', schema).values()) == {1.0}


def test_a_number_of_more_digits_than_python_reads_cannot_be_read():
    long = "1" + "0" * 4300
    assert rewards(f'{{"a": {long}}}', {"properties": {"a": {}}})["json"] == 0.0
    with pytest.raises(ValueError, match="4300 digits"):
        json_schema(['{"a": 1}'], schema=f'{{"properties": {{"a": {{"maximum": {long}}}}}}}')
