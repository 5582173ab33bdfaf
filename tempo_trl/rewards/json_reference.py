"""The reference of a JSON answer: a tree of the leaves that are compared, each with its path as its name."""

import json
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

RESERVED = ("json", "additional", "outside")  # criteria that are not leaves
WHOLE = "$"  # a list at the top that is compared as a whole
MAX_DEPTH = 64  # of a reference
_MAX_DIGITS = 4000  # `int` refuses more than 4,300, and takes quadratic time
_MAX_MARKS = 30  # in a row, as in Unicode's stream-safe texts: NFKC takes quadratic time for more
_PLAIN = re.compile(r'[^.\[\]"]+')


class Leaf(NamedTuple):
    """
    A value that is compared as a whole.

    Args:
        names: Its path, alone.
        form: What equal values have in common ([`Comparison.form`]).
        opener: The bracket that it begins with, `""` for none.
    """

    names: tuple[str]
    form: Hashable
    opener: str


class Branch(NamedTuple):
    """
    An object, or a list in order, whose members are compared one by one.

    Args:
        names: Paths of the leaves below it.
        children: Members by key, or by index.
        opener: `{` or `[`.
    """

    names: tuple[str, ...]
    children: dict[str | int, "Branch | Leaf"]
    opener: str


class Comparison(NamedTuple):
    """When two JSON values are equal: the options of [`~tempo_trl.rewards.json_fields`]."""

    fold: bool = False
    lists: str = "ordered"

    @classmethod
    def of(cls, fold: bool, lists: str) -> "Comparison":
        """The options of a user. Raises ValueError for an unknown one."""
        if lists not in ("ordered", "set"):
            raise ValueError(f'`lists` is {lists!r}, expected "ordered" or "set".')
        return cls(bool(fold), lists)

    def form(self, value: Any, depth: int = 0) -> Hashable:
        """What equal values have in common. A value deeper than any reference is equal to nothing."""
        if depth > MAX_DEPTH:
            return object()
        match value:
            case bool() | None:
                return bool, value
            case int() | float():
                return float, value
            case str():
                return str, folded(value) if self.fold else value
            case list():
                members = [self.form(member, depth + 1) for member in value]
                return list, frozenset(Counter(members).items()) if self.lists == "set" else tuple(members)
            case dict():
                return dict, frozenset((key, self.form(member, depth + 1)) for key, member in value.items())
        return value  # an object that repeats a key, equal to nothing


def folded(text: str) -> str:
    """A text without what folding ignores: case, Unicode's compatibility forms (NFKC), surrounding and repeated space.

    A text with more than 30 combining marks in a row is returned as it is.
    """
    if not text.isascii():
        marks = groupby(text, lambda character: unicodedata.combining(character) > 0)
        if any(are_marks and sum(1 for _ in run) > _MAX_MARKS for are_marks, run in marks):
            return text
    caseless = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", caseless).split())


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object(members: list[tuple[str, Any]]) -> dict | object:
    """The object, or something that is equal to nothing if it repeats a key."""
    found = dict(members)
    return found if len(found) == len(members) else object()


DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant, object_pairs_hook=_object)


def reference_tree(reference: str | dict | list, comparison: Comparison) -> Branch | Leaf:
    """
    The tree of a reference.

    Args:
        reference: The text of a JSON object or array, or the object itself.
        comparison: When values are equal.

    Raises:
        ValueError: if it is anything else, repeats a key, has a number that is not finite, or is nested more than 64
            deep.
    """
    try:
        return _tree(reference if isinstance(reference, str) else json.dumps(reference, allow_nan=False), comparison)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    except TypeError as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=1024)  # the completions of a group have one reference
def _tree(text: str, comparison: Comparison) -> Branch | Leaf:
    value = DECODER.decode(text)
    if not isinstance(value, dict | list):
        raise ValueError(f"it is a single value of type {type(value).__name__}")
    _check(value)
    if not value and (value == {} or comparison.lists == "ordered"):
        return Branch((), {}, "{" if value == {} else "[")
    return _node("", value, comparison)


def _check(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a value that is equal to nothing."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            _check(member, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"it has a number beyond {sys.float_info.max:.1e}")
    elif type(value) is object:
        raise ValueError("one of its objects repeats a key")


def _node(path: str, value: Any, comparison: Comparison) -> Branch | Leaf:
    opener = {dict: "{", list: "["}.get(type(value), "")
    if not value or not opener or (opener == "[" and comparison.lists == "set"):
        return Leaf((path or WHOLE,), comparison.form(value), opener)
    members = value.items() if opener == "{" else enumerate(value)
    children = {key: _node(_path(path, key), member, comparison) for key, member in members}
    return Branch(tuple(name for child in children.values() for name in child.names), children, opener)


def _path(parent: str, key: str | int) -> str:
    """Path of a member: `a.b`, `a[0]`, or `a["b.c"]` for a key that would be read as something else."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    if not _PLAIN.fullmatch(key) or (not parent and key in (*RESERVED, WHOLE)):
        return f"{parent}[{json.dumps(key)}]"
    return f"{parent}.{key}" if parent else key
