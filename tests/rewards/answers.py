"""What the tests of rewards share: options, boxes and real rows."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REAL_ROWS = ROOT.parent / "shared" / "data"
needs_real_rows = pytest.mark.skipif(not REAL_ROWS.is_dir(), reason="needs the real rows beside the repository")

DRUGS = ["Propranolol", "Digoxin", "Amiodarone", "Warfarin", "Diltiazem"]


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def read_rows(name):
    return [json.loads(line) for line in (REAL_ROWS / f"{name}.jsonl").read_text().splitlines()]


class Letters:
    """A tokenizer of which each character is a token."""

    def decode(self, token_ids, **options):
        assert not any(options.values())
        return "".join(map(chr, token_ids))
