"""Read cells of a row. An unexpected value raises a ValueError with the column, the value and the expected type.

A null answer is not an error: such a row is kept, without an answer.
"""

import json
import math
import reprlib
from collections.abc import Callable
from typing import Any


def text(row: dict, column: str) -> str:
    """The text of a cell."""
    if not isinstance(row[column], str):
        raise unexpected(row, column, "a text")
    return row[column]


def texts(row: dict, column: str) -> list[str]:
    """The list of texts of a cell."""
    cell = row[column]
    if not isinstance(cell, list) or not all(isinstance(each, str) for each in cell):
        raise unexpected(row, column, "a list of texts")
    return cell


def objects(row: dict, column: str, expected: str, read: Callable[[str], Any] = json.loads) -> list[dict]:
    """The objects of a cell with a list of them, or with a text from which `read` makes one."""
    try:
        found = read(row[column]) if isinstance(row[column], str) else row[column]
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise unexpected(row, column, expected)
    return found


def json_text(row: dict, column: str, kind: type) -> str:
    """The text of a cell with an object (`dict`) or a list in JSON."""
    try:
        found = json.loads(text(row, column))
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, kind):
        raise unexpected(row, column, f"the JSON text of {'an object' if kind is dict else 'a list'}")
    return row[column]


def lettered_texts(row: dict, column: str) -> dict[str, str]:
    """The texts of a cell by their letters, A first."""
    cell = row[column]
    if not isinstance(cell, dict) or not all(isinstance(each, str | None) for each in cell.values()):
        raise unexpected(row, column, "an object of letters with their texts")
    # All objects of a file have the same keys: a letter that only other rows have is present, with None.
    return {letter: cell[letter] for letter in sorted(cell) if cell[letter] is not None}


def answer_text(row: dict, column: str) -> str:
    """The answer in a cell with a text; empty if null."""
    return "" if row[column] is None else text(row, column)


def answer_number(row: dict, column: str) -> float | None:
    """The answer in a cell with a number, or with a text such as `27.0`; None if null or not finite."""
    if row[column] is None:
        return None
    try:
        number = float(row[column])
    except (TypeError, ValueError, OverflowError):
        raise unexpected(row, column, "a number") from None
    return number if math.isfinite(number) else None


def answer_index(row: dict, column: str) -> int:
    """The index of the correct option in a cell; -1 if null or not finite."""
    cell = row[column]
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return -1
    # pandas writes a column of whole numbers as floats if one of them is missing
    if isinstance(cell, bool) or not isinstance(cell, int | float) or cell != int(cell):
        raise unexpected(row, column, "a whole number")
    return int(cell)


def unexpected(row: dict, column: str, expected: str) -> ValueError:
    """The error to raise for a cell with an unexpected value."""
    return ValueError(f"{column} is {reprlib.repr(row[column])}, expected {expected}. Correct the cell.")
