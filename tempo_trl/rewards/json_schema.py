"""Span reward function for answers in JSON without a reference: what a JSON schema asks of each property.

    text        Sure: {"city": "Paris", "quantity": 0}<|im_end|>
    schema            {"properties": {"city": {"type": "string"}, "quantity": {"minimum": 1}, "express": {}},
                       "required": ["city", "quantity", "express"]}

    criterion   reward  place
    city        1.0     `"city": "Paris"`
    quantity    0.0     `"quantity": 0`
    express     0.0     `}`, which closed the object without it
    json        1.0     the object
    additional  1.0     `}`
    outside     0.0     `Sure: `

The library `jsonschema` judges in a child process that has limits ([`~tempo_trl.rewards.grader`]).
"""

import json
from collections.abc import Container, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from tempo_trl.rewards.grader import schema_grader, undecided
from tempo_trl.rewards.json_fields import judged
from tempo_trl.rewards.json_reading import Node, Path, Verdict, on_closers, path_name
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import readings
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options


class Schema(NamedTuple):
    """
    A valid schema.

    Args:
        text: It as JSON.
        openers: The brackets that its values may begin with.
        named: The paths of the criteria.
    """

    text: str
    openers: str
    named: list[Path]


def json_schema(
    texts: list[str],
    completions: list[list[dict[str, str]]] | list[str] | None = None,
    *,
    schema: str | dict | list | None = None,
    column: str = "schema",
    **columns,
) -> list[list[SpanReward]]:
    """
    Span reward function: check the JSON in each completion against a JSON schema, property by property.

    Take it where many answers are right. Where one is, [`~tempo_trl.rewards.json_fields`] compares with it. Pydantic's
    `model_json_schema()` is a schema as it is:

        span_reward_funcs = partial(json_schema, schema=Product.model_json_schema())

    The answer is found as in [`~tempo_trl.rewards.json_fields`]; its JSON begins at the first bracket of a kind that
    the schema allows, that of an object if it names properties. All completions of one schema have the same criteria,
    and each earns 1.0 or 0.0:

    - every property that the schema names in `properties` or `required`, also through `$ref` and `allOf`, by its path
      (`address`, `address.street`): whether the value is right, apart from its own properties with a criterion. List
      elements and the alternatives of `anyOf` and `oneOf` belong to the property that has them, and so does a
      property that leads back to a schema around it. If right, its place is key and value; if not, each value in it
      that is wrong, with its key, and for what is missing the bracket that closed the object. A property that may be
      absent is right if it is, at that bracket. In an object that is missing, or is another kind of value, a property
      is as right as the object;
    - `$`, what else the schema asks of the whole, if it does: of a list, by `minProperties`, by `if`;
    - `json`, `additional` and `outside` as in [`~tempo_trl.rewards.json_fields`]. Additional is a key that
      the schema forbids by `additionalProperties: false`, or that comes again. `unevaluatedProperties` is refused.

    Whatever an error of syntax leaves undecided is 0.0 from the error on. `format` is a note, as the standard has it:
    use `pattern`. Nothing is fetched. A completion is not judged, with one warning, if that takes more than 3 s of CPU
    time or 4 GiB of memory, or is nested too deep, or if its answer has a number beyond the largest float. A number of
    more than 4,300 digits cannot be read.

    Args:
        texts: The completions with their special tokens. Places are characters of them.
        completions: Conversations or plain strings, as in [`~tempo_trl.rewards.json_fields`].
        schema: The schema of all rows, an object or JSON text. By default each row has its own in the column. A list
            is what TRL passes for a dataset column `schema`, which comes before a schema of all rows.
        column: Dataset column of the schemas: JSON texts, which is recommended, or objects. `datasets` gives all
            objects of a column the same keys, and fills in null. A completion whose schema is None is not judged.
        **columns: The schemas' column, and whatever else TRL passes.

    Raises:
        ValueError: a dataset column named `column`, no column of schemas, or a schema that is not valid, refers to
            something outside of it, or has keywords of which none asks for anything.
    """
    refuse_columns_as_options("json_schema", column=column)
    if isinstance(schema, list):
        columns["schema"] = schema
    elif schema is not None:
        columns[column] = [schema] * len(texts)
    expected = 'a JSON schema, such as {"properties": {"city": {"type": "string"}}, "required": ["city"]}'
    schemas = referenced(columns, column, "json_schema", _read, expected)
    rows = zip(readings(texts, completions), schemas, strict=True)
    return [
        [] if schema is None else judged(reading.answer, schema.openers, partial(_checked, schema=schema))
        for reading, schema in rows
    ]


def _read(cell: Any) -> Schema | None:
    """A cell as a schema; None if that is undecided. Raises ValueError and TypeError for one that is not valid."""
    text = cell if isinstance(cell, str) else json.dumps(cell, allow_nan=False)
    found = schema_grader.compare(text)
    if found is None:
        return None
    if "invalid" in found:
        raise ValueError(found["invalid"])
    return Schema(text, found["openers"], [*map(tuple, found["named"])])


def _checked(root: Node, schema: Schema) -> tuple[list[tuple], list[Verdict]] | None:
    """The verdicts on the schema's criteria, each after its name, and those on what is additional."""
    found = _found(root, schema)
    if found is None:
        return None
    repeated = [*_repeated(root)]
    additional = [root.place(path) for path in (*found["additional"], *repeated)]
    wrong: dict[Path, list] = {path: [] for path in schema.named}
    for path in map(tuple, found["errors"]):
        wrong.setdefault(_owner(path, wrong), []).append(root.place(path))
    for path in repeated:
        wrong.get(_owner(path, wrong), []).append(root.place(path))
    named = [(path_name(path), *verdict) for path in wrong for verdict in _on(root, path, wrong)]
    openers = dict.fromkeys((path[:-1] for path in schema.named), "{") | {(): root.opener}
    return named, [(0.0, *min(additional, key=itemgetter(0)))] if additional else on_closers(root, openers)


def _owner(path: Path, criteria: Container[Path]) -> Path:
    """The criterion that a path belongs to: the innermost property with one, or the whole."""
    return next((path[:length] for length in range(len(path), 0, -1) if path[:length] in criteria), ())


def _found(root: Node, schema: Schema) -> dict[str, list] | None:
    """The paths that [`~tempo_trl.rewards.schema_errors.schema_errors`] finds in what was read."""
    if not root.opener:
        return {"errors": [], "additional": []}
    try:
        return schema_grader.compare(schema.text, json.dumps(_known(root), allow_nan=False))
    except ValueError:
        return undecided("json_schema", "it has a number beyond the largest float")


def _known(node: Node) -> Any:
    """The value of a node as far as it was read, with the last one of a key that is repeated."""
    if not node.opener:
        return node.value
    last = {key: same[-1] for key, same in node.members.items()}
    known = {key: _known(member) for key, member in last.items() if member.opener or member.end is not None}
    return known if node.opener == "{" else [*known.values()]


def _repeated(node: Node, path: Path = ()) -> Iterator[Path]:
    for key, same in node.members.items():
        if len(same) > 1:
            yield (*path, key)
        yield from _repeated(same[-1], (*path, key))


def _on(root: Node, path: Path, wrong: dict[Path, list]) -> list[Verdict]:
    """The verdicts on a property. What is not there is judged as that in which it would be."""
    node, depth = root.find(path)
    judged_as = path[: depth + 1] if node.opener == "{" else path[:depth]
    places = wrong.get(judged_as)
    if node.end is None or not places:
        return [(float(node.end is not None), *root.place(path))]
    return [(0.0, *place) for place in places]


json_schema_reward = mean_reward(json_schema)
