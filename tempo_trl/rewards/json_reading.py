"""Read a JSON answer beside its reference: which leaves are right, and where each was decided.

The standard library's decoder reads keys and values. Only objects and lists that the reference compares member by
member are walked here, to learn where their members are. Each character is read once.
"""

import re
from dataclasses import dataclass, field
from json import JSONDecodeError
from json.decoder import scanstring
from typing import Any

from tempo_trl.rewards.json_reference import DECODER, Branch, Comparison, Leaf

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass
class Reading:
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


def read_json(text: str, at: int, root: Branch | Leaf, comparison: Comparison) -> Reading:
    """
    Read the JSON that begins at index `at` of a text, beside its reference.

    Args:
        text (`str`): The answer.
        at (`int`): Where the reference's opening bracket is.
        root: The reference.
        comparison: When values are equal.
    """
    reader = _Reader(text, comparison)
    try:
        reader.reading.end = reader.value(root, at, at)
    except JSONDecodeError as error:
        reader.reading.error = error.pos
    return reader.reading


class _Reader:
    """Methods take the index at which something begins, and return the index after it. An error ends the reading."""

    def __init__(self, text: str, comparison: Comparison):
        self.text, self.comparison, self.reading = text, comparison, Reading()

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
        child, is_repeated = node.children.get(key), key in seen
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
        """A whole value, and the index after it. A number at the end of the text was cut off."""
        try:
            value, end = DECODER.raw_decode(self.text, at)
        except JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:  # NaN and Infinity, or nested too deep
            raise JSONDecodeError(str(error), self.text, at) from None
        if end == len(self.text) and isinstance(value, int | float) and not isinstance(value, bool):
            raise JSONDecodeError("Unfinished number", self.text, at)
        return value, end

    def _decide(self, node: Branch | Leaf, reward: float, begin: int, end: int) -> None:
        """Give all leaves of a node one reward and place."""
        self.reading.leaves.update(dict.fromkeys(node.names, (reward, begin, end)))

    def _skip(self, at: int) -> int:
        return _SPACE.match(self.text, at).end()

    def _peek(self, at: int) -> str:
        return self.text[at : at + 1]
