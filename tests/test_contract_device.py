"""Each private thing of torch, accelerate and transformers that the pretend GPU of tests/device stands on.

What to do when one has moved is said in test_contract.py. Only tests rest on these.
"""

import inspect

import torch
import torch.utils.backend_registration as registration
from accelerate.state import AcceleratorState, PartialState
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from transformers import TrainingArguments


def test_torch_lets_python_name_a_device():
    assert inspect.isclass(registration._DummyBackendModule)
    names = list(inspect.signature(registration._setup_privateuseone_for_python_backend).parameters)
    assert names[:1] == ["rename"]
    assert "backend_module" in names


def test_torch_lets_a_tensor_stand_for_another():
    assert callable(torch.Tensor._make_wrapper_subclass)
    assert list(inspect.signature(return_and_correct_aliasing).parameters) == ["func", "args", "kwargs", "out"]
    assert hasattr(TorchDispatchMode, "__torch_dispatch__")
    assert hasattr(torch._C, "DisableTorchFunction")
    assert callable(torch.library.fallthrough_kernel)


def test_operations_are_dispatched_under_the_names_that_are_watched():
    for name in ("_local_scalar_dense", "_to_copy", "_unique2", "index_put", "masked_select", "nonzero"):
        assert hasattr(torch.ops.aten, name), f"PretendGPU counts waits of {name}"


def test_the_device_of_a_run_is_where_it_is_replaced():
    assert isinstance(PartialState._shared_state, dict)
    assert isinstance(AcceleratorState._shared_state, dict)
    assert TrainingArguments._setup_devices.__class__.__name__ == "cached_property"
