"""What a JSON schema asks for, and where a value breaks it: for the child process of `grader.py`, which has limits.

    schema  {"properties": {"city": {"type": "string"}, "days": {"minimum": 1}}, "required": ["city"]}
    value   {"days": 0}
    named   ["city"], ["days"]
    errors  ["city"], which is missing, and ["days"]

A pattern can backtrack for minutes and references can go round in a circle: the child's time or stack ends that.
Nothing is fetched.
"""

import json
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaResource

from tempo_trl.rewards.json_reading import Path

_NOTES = {"$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default", "examples"}
_NOTES |= {"deprecated", "readOnly", "writeOnly"}
_OPENERS = {"object": "{", "array": "["}
_OF_PROPERTIES = {"type", "properties", "required", "$ref", "allOf"}


def schema_errors(schema: str, value: str | None = None) -> dict:
    """
    What a value gets wrong by a schema, or, without a value, what the schema asks for.

    Args:
        schema (`str`): JSON text of the schema.
        value (`str`, *optional*): JSON text of the value.

    Returns:
        `dict`: `invalid`, why the schema is not valid; or `openers`, the brackets that its values may begin with, and
        `named`, the paths of its properties; or `errors`, the paths of what is wrong or missing, and `additional`,
        those of the keys that the schema forbids. The empty path is the value itself.
    """
    try:
        validator, asked = _read(schema)
    except Exception as error:  # of any kind: an older draft has other types where this reads a list
        if isinstance(error, RecursionError | MemoryError):  # undecided
            raise
        return {"invalid": getattr(error, "message", str(error))}
    if value is None:
        return asked
    found = {"errors": [], "additional": []}
    for error in validator.iter_errors(json.loads(value)):
        kind, paths = _places(error)
        found[kind] += paths
    return found


@lru_cache(maxsize=1024)  # the completions of a group have one schema
def _read(text: str) -> tuple[Validator, dict]:
    """The validator of a schema, and what the schema asks for."""
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise ValueError(f"it is of type {type(schema).__name__}")
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    if schema.keys() - _NOTES and not schema.keys() & kind.VALIDATORS.keys():
        raise ValueError(f"none of its keywords asks for anything: {', '.join(schema)}")
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(resource)  # it knows nothing else, and fetches nothing
    _check_parts(resource, resolver)
    parts = [part for part, _ in _parts(schema, resolver)]
    openers = "".join(sorted(_openers(schema, resolver)))
    if not openers:
        raise ValueError("it asks for a value that is neither an object nor a list")
    asks_more = openers == "[" or any(
        key not in _NOTES | _OF_PROPERTIES and not (key == "additionalProperties" and isinstance(value, bool))
        for part in parts
        for key, value in part.items()
    )
    named = dict.fromkeys([*([()] if asks_more else []), *_named(schema, resolver)])
    exact = extend(kind, {"multipleOf": _multiple_of})
    own = {key: value for key, value in schema.items() if key != "$schema"}  # else it is the library's kind
    return exact(own, registry=Registry()), {"openers": openers, "named": [*named]}


def _multiple_of(validator: Validator, divisor: float, value: Any, schema: dict) -> Iterator[ValidationError]:
    """`multipleOf` in decimals: 19.99 is a multiple of 0.01, though not as floats."""
    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(divisor)):
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")


def _check_parts(resource: SchemaResource, resolver: Any) -> None:
    """Raise ValueError for a reference that leads out of the schema, and for a keyword whose errors have no place."""
    resolver = resolver.in_subresource(resource)
    keywords = resource.contents if isinstance(resource.contents, dict) else {}
    if "unevaluatedProperties" in keywords:
        raise ValueError(
            "it has `unevaluatedProperties`, whose errors do not name the key; use `additionalProperties`, and beside "
            'it name the keys of `allOf` again, as in {"properties": {"city": true}}'
        )
    for keyword in ("$ref", "$dynamicRef"):
        reference = keywords.get(keyword)
        try:
            resolver.lookup(reference or "")
        except Unresolvable:
            raise ValueError(f"its reference {reference!r} leads out of it, and nothing is fetched") from None
    for part in resource.subresources():
        _check_parts(part, resolver)


def _parts(schema: dict | bool, resolver: Any, above: Sequence[dict] = ()) -> Iterator[tuple[dict, Any]]:
    """A schema, and the others that hold for the same value: of its `$ref` and `allOf`. None that stands above."""
    if not isinstance(schema, dict) or any(schema is each for each in above):
        return
    resolver, above = resolver.in_subresource(DRAFT202012.create_resource(schema)), (*above, schema)
    yield schema, resolver
    if "$ref" in schema:
        target = resolver.lookup(schema["$ref"])
        yield from _parts(target.contents, target.resolver, above)
    for part in schema.get("allOf", ()):
        yield from _parts(part, resolver, above)


def _openers(schema: dict | bool, resolver: Any, above: Sequence[dict] = ()) -> set[str]:
    """The brackets that values begin with, as far as kinds, constants, names and alternatives tell."""
    allowed = set() if schema is False else {"{", "["}
    parts = [*_parts(schema, resolver, above)]
    above = (*above, *(part for part, _ in parts))
    for part, inside in parts:
        kinds = part.get("type", [*_OPENERS])
        allowed &= {_OPENERS.get(kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)}
        constants = [part["const"]] if "const" in part else part.get("enum")
        if constants is not None:
            allowed &= {json.dumps(value)[0] for value in constants}
        if {"properties", "required"} & part.keys():
            allowed &= {"{"}
        for alternatives in (part[name] for name in ("anyOf", "oneOf") if name in part):
            allowed &= set().union(*(_openers(each, inside, above) for each in alternatives))
    return allowed


def _named(schema: dict | bool, resolver: Any, path: Path = (), above: Sequence[dict] = ()) -> Iterator[Path]:
    """The paths of the properties that a schema names, and of theirs. One that leads back to its own is not opened."""
    parts = [*_parts(schema, resolver, above)]
    above = (*above, *(part for part, _ in parts))
    for part, inside in parts:
        properties = part.get("properties", {})
        for key in dict.fromkeys([*properties, *part.get("required", ())]):
            if properties.get(key) is False:  # `jsonschema` loses the place of its errors
                raise ValueError(f'its property {key!r} is false; write {{"not": {{}}}}')
            yield (*path, key)
            yield from _named(properties.get(key, True), inside, (*path, key), above)


def _places(error: ValidationError) -> tuple[str, list[Path]]:
    """Whether an error is of what is additional, and the paths of what is wrong, missing or additional."""
    path, value = tuple(error.absolute_path), error.instance
    if error.validator == "required":
        return "errors", [(*path, key) for key in error.validator_value if key not in value]
    if error.validator == "additionalProperties":
        allowed, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
        others = [key for key in value if key not in allowed]
        return "additional", [
            (*path, key) for key in others if not any(re.search(pattern, key) for pattern in patterns)
        ]
    return "errors", [path]
