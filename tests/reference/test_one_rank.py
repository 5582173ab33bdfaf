"""Every method trains as it did at the commit of the reference: metrics, advantages, weights, tables, trees, state."""

import pytest

import tempo_trl

from .cases import CASES
from .checking import assert_as_before
from .record import record
from .summary import path_of, read, summary

REFERENCE = read(path_of(1))
BASELINES = [case for case in CASES if case.startswith("prefix baseline")]


@pytest.mark.parametrize("case", CASES)
def test_a_method_trains_as_before(case, tiny_model, tmp_path):
    assert_as_before(case, summary(record(CASES[case], tiny_model, str(tmp_path))), REFERENCE)


@pytest.mark.skipif(not hasattr(tempo_trl, "PrefixBaselineTrainer"), reason="there is no PrefixBaselineTrainer yet")
@pytest.mark.parametrize("case", BASELINES)
def test_the_prefix_baseline_by_its_own_name_trains_as_by_the_option(case, tiny_model, tmp_path):
    options = {name: value for name, value in CASES[case].items() if name != "advantage_estimator"}
    seen = record(options | {"trainer": "PrefixBaseline"}, tiny_model, str(tmp_path))
    assert_as_before(case, summary(seen), REFERENCE)
