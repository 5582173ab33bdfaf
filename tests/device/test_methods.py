"""Every method on a pretend GPU: nothing on the wrong device, the CPU's weights, and no wait a row or a token."""

import pytest

from ..trainers.launching import run_ranks, torchrun
from .cases import CASES, GROWING, OF_RANKS

pytestmark = pytest.mark.matrix

MODULE = "tests.device.run"


@pytest.fixture(scope="module")
def seen(tiny_model, tmp_path_factory) -> dict[str, dict]:
    """What each case did, on one rank."""
    return run_ranks(torchrun(1), 1, MODULE, tiny_model, tmp_path_factory.mktemp("alone"))[0]


@pytest.fixture(scope="module")
def seen_by_ranks(tiny_model, tmp_path_factory) -> list[dict[str, dict]]:
    """The same, by each of two ranks that share groups, with collectives that take tensors of the device alone."""
    return run_ranks(torchrun(2), 2, MODULE, tiny_model, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("name", CASES)
def test_a_method_trains_on_the_device_as_on_the_cpu(name, seen):
    assert "error" not in seen[name], seen[name]["error"]
    assert seen[name]["apart"] < (0.1 if "bf16" in name else 1e-5)


@pytest.mark.parametrize("name", OF_RANKS)
def test_a_method_trains_on_two_devices_as_on_two_cpus(name, seen_by_ranks):
    for of_rank in seen_by_ranks:
        assert "error" not in of_rank[name], of_rank[name]["error"]
        assert of_rank[name]["apart"] < 1e-5


@pytest.mark.parametrize("name", GROWING)
def test_the_host_waits_as_often_for_twice_the_rows_and_tokens(name, seen):
    assert seen[name]["waits"] == seen[f"{name}, twice"]["waits"]
    assert sum(seen[name]["waits"].values()) <= 60  # of two steps; 30 to 48 were counted


def test_a_tensor_on_the_wrong_device_is_found(seen):
    error = seen["advantages left on the CPU"]["error"]
    assert "MixedDevices: Expected all tensors to be on the same device" in error


def test_a_wait_a_row_is_found(seen):
    assert seen["a wait a row"]["waits"] != seen["a wait a row, twice"]["waits"]
