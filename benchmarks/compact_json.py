"""Write the numbers of a figure as compact JSON: rounded, with one line per record."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tempo_trl.runs.files import write_atomically

LEVELS_OF_A_LINE = 2  # {"seed": 0, "accuracy": [0.4, 0.9]} has two


def write_json(path: Path, numbers: dict, digits: int) -> None:
    """Write `numbers`, made [`plain`], to a file in a folder that may not exist yet: all of it, or nothing."""
    write_atomically(path, _layout(plain(numbers, digits)) + "\n")


def plain(value: Any, digits: int) -> Any:
    """`value` in JSON's types: floats of `digits` significant digits, null for NaN, and a string for infinity."""
    if isinstance(value, dict):
        return {key: plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item, digits) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
    if np.isnan(value):
        return None
    return float(f"{value:.{digits}g}") if np.isfinite(value) else str(value)


def _layout(value: Any, indent: str = "") -> str:
    """JSON with an item per line, in which an item of two levels or fewer is not broken."""
    if _levels(value) <= LEVELS_OF_A_LINE:
        return json.dumps(value, allow_nan=False)
    inner = indent + " "
    if isinstance(value, dict):
        items, ends = [f"{json.dumps(key)}: {_layout(item, inner)}" for key, item in value.items()], "{}"
    else:
        items, ends = [_layout(item, inner) for item in value], "[]"
    lines = ",\n".join(inner + item for item in items)
    return f"{ends[0]}\n{lines}\n{indent}{ends[1]}"


def _levels(value: Any) -> int:
    """How deep lists and objects are nested in `value`: 0 for a number."""
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)
