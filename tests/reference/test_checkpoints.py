"""A checkpoint of the old layout resumes, and the run goes on as it did at the commit that wrote it."""

import pytest

from .cases import CASES, trainer_of
from .checking import assert_as_before
from .checkpoints import FOLDER, RESUMED, save_model
from .record import trained
from .summary import read, summary

REFERENCE = read(FOLDER / "resumed.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("small")
    save_model(folder)
    return str(folder)


@pytest.mark.parametrize("case", RESUMED)
def test_an_old_checkpoint_resumes(case, model, tmp_path):
    seen = trained(trainer_of(CASES[case], model, str(tmp_path)), str(FOLDER / case))
    assert_as_before(case, summary(seen), REFERENCE)
