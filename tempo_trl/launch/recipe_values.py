"""Check that numeric fields of a recipe are numbers: argparse converts flags, but takes the values of a YAML as is."""

from argparse import Action
from types import NoneType
from typing import TYPE_CHECKING, get_args, get_type_hints

if TYPE_CHECKING:
    from transformers import HfArgumentParser

NUMBERS = {"int": "a whole number", "float": "a number"}  # by the name of a flag's type, optional ones included


def check_numbers(parser: "HfArgumentParser", recipe: dict) -> None:
    """
    Raises:
        ValueError: a value is not a number, or a list of numbers, where its flag expects one.
    """
    hints = {name: hint for kind in parser.dataclass_types for name, hint in get_type_hints(kind).items()}
    optional = {name for name, hint in hints.items() if NoneType in get_args(hint)}
    for action in parser._actions:
        value = recipe.get(action.dest)
        if action.dest in recipe and not (value is None and action.dest in optional):
            _check(action, value)


def _check(action: Action, value: object) -> None:
    kind, listed = getattr(action.type, "__name__", ""), action.nargs in ("+", "*")
    items = value if listed and isinstance(value, list) else [value]
    if kind not in NUMBERS or (listed == isinstance(value, list) and all(_is_number(kind, item) for item in items)):
        return
    expected = f"{'a list, each ' if listed else ''}{NUMBERS[kind]}"
    raise ValueError(f"`{action.dest}` is {value!r}, expected {expected}. Correct it in the recipe.")


def _is_number(kind: str, value: object) -> bool:
    if isinstance(value, str):  # `1e-6`, which YAML reads as text: argparse converts it, or says why not
        return True
    return isinstance(value, int if kind == "int" else int | float) and not isinstance(value, bool)
