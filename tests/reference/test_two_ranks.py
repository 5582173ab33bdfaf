"""Every method trains on two ranks, with groups that lie on both, as it did at the commit of the reference."""

import pytest

from ..trainers.launching import run_ranks, torchrun
from .checking import assert_as_before
from .summary import path_of, read, summary_of_ranks

pytestmark = pytest.mark.matrix

REFERENCE = read(path_of(2))
# One of each kind of run whose ranks exchange something of their own; on one rank all cases are compared.
CASES = (
    "tempo",
    "tempo, several updates a generation",
    "tempo on entropy trees",
    "prefix baseline",
    "grpo_lambda, trace, recent",
    "treerpo",
    "ppo",
    "ppo, shared trunk",
)


@pytest.fixture(scope="module")
def ranks(tiny_model, tmp_path_factory) -> list[dict]:
    return run_ranks(torchrun(2), 2, "tests.reference.rank", tiny_model, tmp_path_factory.mktemp("reference"), *CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_method_trains_as_before(case, ranks):
    assert_as_before(case, summary_of_ranks([seen[case] for seen in ranks]), REFERENCE)
