"""Read a JSON answer beside its reference: which leaves are right, and where each was decided.

The reference is a tree of the leaves that are compared, each with its path as its name. The standard library's decoder
reads keys and values of the answer. Only objects and lists that the reference compares member by member are walked
here, to learn where their members are. Each character is read once.
"""

import json
import math
import re
import reprlib
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from json import JSONDecodeError
from json.decoder import scanstring
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
_LENIENT = json.JSONDecoder(parse_int=_integer)


def read_reference(value: Any, where: str, read: Callable[[Any], Any], expected: str, name: str) -> Any:
    """
    What `read` makes of a cell of the reference's column, None of None. Raises ValueError with the cell and what is
    expected.
    """
    try:
        return None if value is None else read(value)
    except (ValueError, RecursionError) as error:
        got = repr(value[:200]) if isinstance(value, str) else reprlib.repr(value)
        raise ValueError(f"{where} is {got}, expected {expected}: {error}. Correct the {name}.") from error


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


# The answer beside its reference

_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER_NUMBER = re.compile(r"[\s,\]}]")


@dataclass
class JsonReading:
    """
    What was read of an answer. Places are `(start, end)` in characters of it, the last one excluded.

    Args:
        leaves: Reward and place of each leaf that was decided, by name.
        closers: Where each object and list that was walked ends: the index of its last bracket.
        additional: Place of the first key or element that the reference does not have; None without one.
        end: The index after the JSON; None if it was not read to its end.
        error: The index of the character from which it cannot be read; None without an error.
    """

    leaves: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    closers: list[int] = field(default_factory=list)
    additional: tuple[int, int] | None = None
    end: int | None = None
    error: int | None = None

    def verdicts_on_additional(self, stop: int | None) -> list[tuple[float, int, int | None]]:
        """
        Reward and place of the criterion `additional`; with several places each is an entry. What an error leaves
        undecided ends at `stop`, or with the text.
        """
        if self.additional is not None:
            return [(0.0, *self.additional)]
        if self.end is None:
            return [(0.0, self.error, stop)]
        return [(1.0, closer, closer + 1) for closer in self.closers or [self.end - 1]]


def read_json(
    text: str, at: int, root: Branch | Leaf, comparison: Comparison, is_lenient: bool = False
) -> JsonReading:
    """
    Read the JSON that begins at index `at` of a text, beside its reference.

    Args:
        text (`str`): The answer.
        at (`int`): Where the reference's opening bracket is.
        root: The reference.
        comparison: When values are equal.
        is_lenient: Whether to read it as the standard library does: the last value of a repeated key counts.
    """
    reader = _Reader(text, comparison, is_lenient)
    try:
        reader.reading.end = reader.value(root, at, at)
    except JSONDecodeError as error:
        reader.reading.error = error.pos
    return reader.reading


class _Reader:
    """Methods take the index at which something begins, and return the index after it. An error ends the reading."""

    def __init__(self, text: str, comparison: Comparison, is_lenient: bool):
        self.text, self.comparison, self.reading = text, comparison, JsonReading()
        self.decoder, self.is_lenient = _LENIENT if is_lenient else DECODER, is_lenient

    def value(self, node: Branch | Leaf, begin: int, at: int) -> int:
        """Read the value of a node, whose place begins at its key."""
        if isinstance(node, Branch) and self._peek(at) == node.opener:
            return self._container(node, at)
        value, end = self._decoded(at)
        is_right = isinstance(node, Leaf) and self.comparison.form(value) == node.form
        self._decide(node, float(is_right), begin, end)
        return end

    def _container(self, node: Branch, at: int) -> int:
        """Read an object or a list, member by member."""
        closer, seen = "}" if node.opener == "{" else "]", set()
        at = self._skip(at + 1)
        if self._peek(at) != closer:
            at = self._members(node, at, seen)
        if self._peek(at) != closer:
            raise JSONDecodeError(f"Expecting ',' or {closer!r}", self.text, at)
        self.reading.closers.append(at)
        for key, child in node.children.items():
            if key not in seen:
                self._decide(child, 0.0, at, at + 1)
        return at + 1

    def _members(self, node: Branch, at: int, seen: set[str | int]) -> int:
        while True:
            at = self._skip(self._member(node, at, seen))
            if self._peek(at) != ",":
                return at
            at = self._skip(at + 1)

    def _member(self, node: Branch, begin: int, seen: set[str | int]) -> int:
        """Read one member. A key that comes again is additional, and its leaves are wrong: it can be read two ways."""
        key, at = self._key(begin) if node.opener == "{" else (len(seen), begin)
        child, is_repeated = node.children.get(key), key in seen and not self.is_lenient
        seen.add(key)
        if child is not None and not is_repeated:
            return self.value(child, begin, at)
        end = self._decoded(at)[1]
        self.reading.additional = self.reading.additional or (begin, end)
        if child is not None:
            self._decide(child, 0.0, begin, end)
        return end

    def _key(self, at: int) -> tuple[str, int]:
        """A key, and the index of its value."""
        if self._peek(at) != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self.text, at)
        key, at = scanstring(self.text, at + 1, True)
        at = self._skip(at)
        if self._peek(at) != ":":
            raise JSONDecodeError("Expecting ':' delimiter", self.text, at)
        return key, self._skip(at + 1)

    def _decoded(self, at: int) -> tuple[Any, int]:
        """A whole value, and the index after it. A number ends where JSON goes on; else it was cut off, or is none."""
        try:
            value, end = self.decoder.raw_decode(self.text, at)
        except JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:  # NaN and Infinity, or nested too deep
            raise JSONDecodeError(str(error), self.text, at) from None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not _AFTER_NUMBER.match(self.text, end):
            raise JSONDecodeError("Unfinished number", self.text, at)
        return value, end

    def _decide(self, node: Branch | Leaf, reward: float, begin: int, end: int) -> None:
        """Give all leaves of a node one reward and place."""
        self.reading.leaves.update(dict.fromkeys(node.names, (reward, begin, end)))

    def _skip(self, at: int) -> int:
        return _SPACE.match(self.text, at).end()

    def _peek(self, at: int) -> str:
        return self.text[at : at + 1]
