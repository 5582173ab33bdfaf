"""Read JSON with the place of each value, and compare it with a reference, leaf by leaf.

    text        {"city": "Rome", "to": [1, 2
    scan        `"city": "Rome"`, and of `"to"` the member `1`; an error at `2`, a number that may have been cut off
    reference   {"city": "Rome", "to": [3]}
    compared    city 1.0 at `"city": "Rome"`, to[0] 0.0 at `1`, additional 0.0 from `2` on

A text is scanned once, up to its first error, and what was read before it keeps its values and places. [`scan`] and
[`Node.find`] know nothing of references: they serve every checker.
"""

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from json import JSONDecodeError
from json.decoder import scanstring
from operator import itemgetter
from typing import Any, NamedTuple

RESERVED = ("json", "additional", "outside")  # criteria that are not leaves
WHOLE = "$"  # a list at the top that is compared as a whole
MAX_DEPTH = 64  # of a reference, and of values that have places
_MAX_MARKS = 30  # in a row, as in Unicode's stream-safe texts: NFKC takes quadratic time for more
_PLAIN = re.compile(r'[^.\[\]"]+')
_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER_NUMBER = re.compile(r"[\s,\]}]")

Key = str | int
Path = tuple[Key, ...]
Verdict = tuple[float, int, int | None]  # reward and place; without an end it is that of the text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_STRICT, _LENIENT = json.JSONDecoder(parse_constant=_refuse_constant), json.JSONDecoder()


# Values with places


@dataclass
class Node:
    """
    A value in a text.

    Args:
        start: Index of its first character; of a member of an object, that of its key.
        end: Index after its last character; None if an error comes before.
        opener: `{` or `[`, and `""` for any other value and for one that is nested more than 64 deep.
        members: Those of an object by key, of a list by index. A key that is repeated has more than one.
        value: What it is. An object that repeats a key is equal to nothing.
        error: Of the whole JSON, the index from which it cannot be read; None without an error.
    """

    start: int
    end: int | None = None
    opener: str = ""
    members: dict[Key, list["Node"]] = field(default_factory=dict)
    value: Any = None
    error: int | None = None

    def find(self, path: Path) -> tuple["Node", int]:
        """
        The value at a path, or the last one on the way to it, and how many keys of the path lead there.

        What a repeated key leads to can be read two ways: it has the place of the last one, and is equal to nothing.
        """
        node = self
        for depth, key in enumerate(path):
            same = node.members.get(key)
            if same is None:
                return node, depth
            node = same[0] if len(same) == 1 else Node(same[-1].start, same[-1].end, value=object())
        return node, len(path)

    def place(self, path: Path) -> tuple[int, int | None]:
        """
        Of the whole JSON, where a path is decided: at its value, with its key. If that is missing, at the bracket that
        closed its object or list, or at the other value that stands there. What an error leaves open has no end.
        """
        node, depth = self.find(path)
        if node.end is None:
            return self.error, None
        is_missing = depth < len(path) and node.opener == ("[" if isinstance(path[depth], int) else "{")
        return node.end - 1 if is_missing else node.start, node.end


def scan(text: str, at: int, is_lenient: bool = False) -> Node:
    """
    The JSON that begins at index `at` of a text.

    Args:
        text (`str`): The text.
        at (`int`): Where the JSON begins.
        is_lenient (`bool`): Whether to read it as the standard library does: the last value of a repeated key counts,
            and NaN and Infinity are numbers.
    """
    root = Node(at)
    try:
        _Scanner(text, is_lenient).read(root, at, 0)
    except JSONDecodeError as error:
        root.error = error.pos
    return root


class _Scanner:
    """Methods take the index at which something begins, and return the index after it. An error ends the reading."""

    def __init__(self, text: str, is_lenient: bool):
        self.text, self.is_lenient, self.decoder = text, is_lenient, _LENIENT if is_lenient else _STRICT

    def read(self, node: Node, at: int, depth: int) -> int:
        if depth > MAX_DEPTH or self.text[at : at + 1] not in ("{", "["):
            node.value, node.end = self._decoded(at)
            return node.end
        node.opener = self.text[at]
        node.end = self._members(node, at + 1, depth)
        values = {key: same[-1].value for key, same in node.members.items()}
        is_unique = all(len(same) == 1 for same in node.members.values())
        node.value = [*values.values()] if node.opener == "[" else values if is_unique else object()
        return node.end

    def _members(self, node: Node, at: int, depth: int) -> int:
        closer = "}" if node.opener == "{" else "]"
        at = self._skip(at)
        if self.text[at : at + 1] == closer:
            return at + 1
        sign = ","
        while sign == ",":
            at = self._skip(at)
            member = Node(at)
            key, at = self._key(at) if node.opener == "{" else (len(node.members), at)
            same = node.members.setdefault(key, [])
            if self.is_lenient:
                same.clear()
            same.append(member)
            sign, at = self._sign(self.read(member, at, depth + 1), "," + closer)
        return at

    def _key(self, at: int) -> tuple[str, int]:
        """A key, and the index of its value."""
        _, at = self._sign(at, '"')
        key, at = scanstring(self.text, at, True)
        _, at = self._sign(at, ":")
        return key, self._skip(at)

    def _sign(self, at: int, expected: str) -> tuple[str, int]:
        """The next character that is not white space, which must be one of those that are expected."""
        at = self._skip(at)
        sign = self.text[at : at + 1]
        if not sign or sign not in expected:
            raise JSONDecodeError(f"Expecting one of {expected!r}", self.text, at)
        return sign, at + 1

    def _decoded(self, at: int) -> tuple[Any, int]:
        """A whole value, and the index after it. A number ends where JSON goes on; else it was cut off, or is none."""
        try:
            value, end = self.decoder.raw_decode(self.text, at)
        except (ValueError, RecursionError) as error:  # NaN, more than 4,300 digits, too deep: these have no place
            raise JSONDecodeError(str(error), self.text, getattr(error, "pos", at)) from None
        if type(value) in (int, float) and not _AFTER_NUMBER.match(self.text, end):
            raise JSONDecodeError("Unfinished number", self.text, at)
        return value, end

    def _skip(self, at: int) -> int:
        return _SPACE.match(self.text, at).end()


# References


@dataclass(frozen=True)
class Comparison:
    """When two JSON values are equal: the options of [`~tempo_trl.rewards.json_fields`]. ValueError for another."""

    fold: bool = False
    lists: str = "ordered"

    def __post_init__(self):
        if self.lists not in ("ordered", "set"):
            raise ValueError(f'`lists` is {self.lists!r}, expected "ordered" or "set".')

    def form(self, value: Any, depth: int) -> Hashable:
        """What equal values at a depth have in common. Raises ValueError for a value that is equal to nothing."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        match value:
            case bool() | None:
                return bool, value
            case int() | float() if abs(value) < math.inf:
                return float, value
            case str():
                return str, folded(value) if self.fold else value
            case list():
                members = [self.form(member, depth + 1) for member in value]
                return list, frozenset(Counter(members).items()) if self.lists == "set" else tuple(members)
            case dict():
                return dict, frozenset((key, self.form(member, depth + 1)) for key, member in value.items())
        raise ValueError("it repeats a key, or has a number that is not finite")


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


class Reference(NamedTuple):
    """
    What an answer is compared with.

    Args:
        opener: The bracket that it begins with.
        leaves: Of each value that is compared as a whole, the path and what is equal to it, by the criterion's name.
        branches: Of each object, and of each list in order, whose members are compared one by one, the bracket and
            the keys, by path.
        comparison: When values are equal.
    """

    opener: str
    leaves: dict[str, tuple[Path, Hashable]]
    branches: dict[Path, tuple[str, set[Key]]]
    comparison: Comparison


@lru_cache(maxsize=1024)  # the completions of a group have one reference
def reference_of(text: str, comparison: Comparison) -> Reference:
    """
    The reference that the text of a JSON object or array is.

    Raises:
        ValueError: if it is anything else, repeats a key, has a number that is not finite, or is nested more than 64
            deep.
    """
    root = scan(text, _SPACE.match(text).end())
    end = root.end if root.error is None else root.error
    if root.error is not None or not root.opener or text[end:].strip():
        raise ValueError(f"it is no object or array, or cannot be read from character {end} on")
    reference = Reference(root.opener, {}, {}, comparison)
    _add(reference, (), root)
    return reference


def _add(reference: Reference, path: Path, node: Node) -> None:
    """Add a value's leaves, and the objects and lists above them."""
    is_whole = not node.opener or (node.opener == "[" and reference.comparison.lists == "set")
    if is_whole or (path and not node.members) or any(len(same) > 1 for same in node.members.values()):
        reference.leaves[path_name(path)] = path, reference.comparison.form(node.value, len(path))
        return
    reference.branches[path] = node.opener, {*node.members}
    for key, [member] in node.members.items():
        _add(reference, (*path, key), member)


def path_name(path: Path) -> str:
    """Name of a leaf: `a.b`, `a[0]`, or `a["b.c"]` for a key that would be read as something else."""
    name = ""
    for key in path:
        if isinstance(key, int):
            name += f"[{key}]"
        elif not _PLAIN.fullmatch(key) or (not name and key in (*RESERVED, WHOLE)):
            name += f"[{json.dumps(key)}]"
        else:
            name += f".{key}" if name else key
    return name or WHOLE


# An answer beside its reference


def compared(root: Node, reference: Reference) -> tuple[dict[str, Verdict], list[Verdict]]:
    """
    A scanned answer beside its reference. What an error leaves undecided is wrong from there on.

    Returns:
        The verdict on each leaf of the reference by name, and those on the criterion `additional`, one per place: the
        first key or element that the reference does not have, or the brackets that close what is compared member by
        member.
    """
    leaves = {
        name: (_reward(root, path, form, reference.comparison), *root.place(path))
        for name, (path, form) in reference.leaves.items()
    }
    return leaves, _on_additional(root, reference)


def _reward(root: Node, path: Path, form: Hashable, comparison: Comparison) -> float:
    node, depth = root.find(path)
    try:
        return float(depth == len(path) and node.end is not None and comparison.form(node.value, depth) == form)
    except ValueError:
        return 0.0


def _on_additional(root: Node, reference: Reference) -> list[Verdict]:
    """The verdicts on what the reference does not have."""
    additional = []
    for path, (opener, keys) in reference.branches.items():
        node, depth = root.find(path)
        if depth == len(path) and node.opener == opener:
            others = chain(*(same[key in keys :] for key, same in node.members.items()))
            additional += [(0.0, each.start, each.end) for each in others if each.end is not None]
    openers = {path: opener for path, (opener, _) in reference.branches.items()}
    return [min(additional, key=itemgetter(1))] if additional else on_closers(root, openers)


def on_closers(root: Node, openers: dict[Path, str]) -> list[Verdict]:
    """The verdicts on the brackets that close what begins with an opener at a path, or the whole without any."""
    if root.end is None:
        return [(0.0, root.error, None)]
    found = [(path, *root.find(path)) for path in openers]
    ends = {node.end for path, node, depth in found if depth == len(path) and node.opener == openers[path]}
    return [(1.0, end - 1, end) for end in sorted(ends or {root.end})]
