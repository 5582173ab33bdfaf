"""Numeric fields of a recipe: argparse converts flags and single texts, but takes the other values of a YAML as is."""

import contextlib
from argparse import Action
from types import NoneType
from typing import TYPE_CHECKING, get_args, get_type_hints

if TYPE_CHECKING:
    from transformers import HfArgumentParser

NUMBERS = {"int": "a whole number", "float": "a number"}  # by the name of a flag's type, optional ones included


def with_numbers(parser: "HfArgumentParser", recipe: dict) -> dict:
    """
    The recipe with its numbers checked, and those that lists have as text converted.

    Raises:
        ValueError: a value is not a number, or a list of numbers, where its flag expects one.
    """
    hints = {name: hint for kind in parser.dataclass_types for name, hint in get_type_hints(kind).items()}
    optional = {name for name, hint in hints.items() if NoneType in get_args(hint)}
    numbers = {
        action.dest: _number(action, recipe[action.dest])
        for action in parser._actions
        if action.dest in recipe and not (recipe[action.dest] is None and action.dest in optional)
    }
    return recipe | numbers


def _number(action: Action, value: object) -> object:
    kind, listed = getattr(action.type, "__name__", ""), action.nargs in ("+", "*")
    items = value if listed and isinstance(value, list) else [value]
    if kind not in NUMBERS:
        return value
    if listed == isinstance(value, list) and all(_is_number(kind, item) for item in items):
        with contextlib.suppress(ValueError):  # of a text that is not a number
            return [action.type(item) for item in items] if listed else value
    expected = f"{'a list, each ' if listed else ''}{NUMBERS[kind]}"
    raise ValueError(f"`{action.dest}` is {value!r}, expected {expected}. Correct it in the recipe.")


def _is_number(kind: str, value: object) -> bool:
    if isinstance(value, str):  # `1e-6`, which YAML reads as text: converted later, or refused
        return True
    return isinstance(value, int if kind == "int" else int | float) and not isinstance(value, bool)
