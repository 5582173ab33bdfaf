"""Every method trains as it did at the commit of the reference: metrics, advantages, weights, tables, trees, state."""

import pytest

from .cases import CASES
from .checking import assert_as_before
from .record import record
from .summary import path_of, read, summary

REFERENCE = read(path_of(1))


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES)
def test_a_method_trains_as_before(case, tiny_model, tmp_path):
    assert_as_before(case, summary(record(CASES[case], tiny_model, str(tmp_path))), REFERENCE)
