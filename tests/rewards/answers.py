"""What the tests of rewards share: options, boxes and real rows."""

import json
from pathlib import Path

import pytest

from tempo_trl.rewards import math_reward

ROOT = Path(__file__).parents[2]
REAL_ROWS = ROOT.parent / "shared" / "data"
needs_real_rows = pytest.mark.skipif(not REAL_ROWS.is_dir(), reason="needs the real rows beside the repository")

DRUGS = ["Propranolol", "Digoxin", "Amiodarone", "Warfarin", "Diltiazem"]


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def read_rows(name):
    return [json.loads(line) for line in (REAL_ROWS / f"{name}.jsonl").read_text().splitlines()]


def is_paid(gold, answer):
    """An answer in a box, to a bare gold."""
    return math_reward([boxed(answer)], [gold]) == [1.0]


def reward(gold, answer):
    """Of an answer in a box, to a gold in a box."""
    return math_reward([boxed(answer)], [boxed(gold)])[0]
