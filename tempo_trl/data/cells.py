"""Read cells of a row. An unexpected value raises a ValueError with the column, the value and the expected type.

A null answer is not an error: such a row is kept, without an answer.
"""

import math
import reprlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def cell(row: dict, column: str, expected: str, is_expected: bool) -> Any:
    """The value of a cell. Raises ValueError unless it `is_expected`; `expected` is what that is, in words."""
    if not is_expected:
        raise ValueError(f"{column} is {reprlib.repr(row[column])}, expected {expected}. Correct the cell.")
    return row[column]


def text(row: dict, column: str) -> str:
    """The text of a cell."""
    return cell(row, column, "a text", isinstance(row[column], str))


def texts(row: dict, column: str) -> list[str]:
    """The list of texts of a cell."""
    return cell(row, column, "a list of texts", _all(row[column], list, str))


def objects(row: dict, column: str, expected: str, read: Callable[[str], Any]) -> list[dict]:
    """The objects of a cell with a list of them, or with a text from which `read` makes one."""
    found = read(row[column]) if isinstance(row[column], str) else row[column]
    cell(row, column, expected, _all(found, list, dict))
    return found


def lettered_texts(row: dict, column: str) -> dict[str, str]:
    """The texts of a cell by their letters, A first."""
    # All objects of a file have the same keys: a letter that only other rows have is present, with None.
    found = cell(row, column, "an object of letters with their texts", _all(row[column], dict, str | None))
    return {letter: found[letter] for letter in sorted(found) if found[letter] is not None}


def _all(value: Any, container: type, kind: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, container) and all(isinstance(each, kind) for each in values)


def answer_text(row: dict, column: str) -> str:
    """The answer in a cell with a text; empty if null."""
    return "" if row[column] is None else text(row, column)


def answer_number(row: dict, column: str) -> float | None:
    """The answer in a cell with a number, or with a text such as `27.0`; None if null or not finite."""
    if row[column] is None:
        return None
    number = None
    with suppress(TypeError, ValueError, OverflowError):
        number = float(row[column])
    cell(row, column, "a number", number is not None)
    return number if math.isfinite(number) else None


def answer_index(row: dict, column: str) -> int:
    """The index of the correct option in a cell; -1 if null or not finite."""
    value = row[column]
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return -1
    # pandas writes a column of whole numbers as floats if one of them is missing
    return int(cell(row, column, "a whole number", type(value) in (int, float) and value == int(value)))
