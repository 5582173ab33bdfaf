r"""Metamorphic tests: what stays equal is paid, what changes is not, for every family of forms and every gold."""

import re
from pathlib import Path

import pytest

from .answers import needs_real_rows
from .families import EQUAL, GOLDS, UNEQUAL, graded, real_golds

PAGE = Path(__file__).parents[2] / "docs" / "rewards.md"


@pytest.mark.parametrize("name", EQUAL)
def test_equal_forms_are_paid(name):
    rows = graded({name: EQUAL[name]}, GOLDS)[name]
    assert rows, "no gold has this form"
    assert [row for row in rows if row[2] != 1.0] == []


@pytest.mark.parametrize("name", UNEQUAL)
def test_changes_are_not_paid(name):
    rows = graded({name: UNEQUAL[name]}, GOLDS)[name]
    assert rows, "no gold has this form"
    assert [row for row in rows if row[2] != 0.0] == []


@pytest.mark.matrix
@needs_real_rows
def test_equal_forms_of_real_golds_are_paid():
    paid = graded(EQUAL, real_golds())
    assert {name: bad for name, rows in paid.items() if (bad := [row for row in rows if row[2] != 1.0])} == {}


@pytest.mark.matrix
@needs_real_rows
def test_changes_of_real_golds_are_not_paid():
    paid = graded(UNEQUAL, real_golds())
    assert {name: bad for name, rows in paid.items() if (bad := [row for row in rows if row[2] != 0.0])} == {}


def test_the_page_has_a_row_for_each_family():
    rows = re.findall(r"^\| (.+) \| (paid|refused) \| [\d,]+ \| [\d,]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, "paid") for name in EQUAL] + [(name, "refused") for name in UNEQUAL]
