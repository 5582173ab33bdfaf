"""The record of a run tells a change of a method, and no case is missing."""

from tempo_trl.methods import METHODS

from .cases import BESIDE, CASES
from .exact import changes
from .record import record


def test_every_method_has_a_case():
    assert {case.get("method", BESIDE["method"]) for case in CASES.values()} == set(METHODS)


def test_two_runs_are_the_same_and_another_coefficient_is_told(tiny_model, tmp_path):
    once, again, other = (
        record({"max_steps": 2, "td_coef": coefficient}, tiny_model, str(tmp_path / name))
        for name, coefficient in {"once": 1.0, "again": 1.0, "other": 0.5}.items()
    )
    assert list(changes(once, again)) == []
    told = "\n".join(changes(once, other))
    assert "differs: advantages/00" in told and "differs: weights/" in told
    assert "differs: ids/" not in told
