"""A pretend GPU on the CPU: its tensors refuse what CUDA refuses, and count when the host would wait for the device.

    with PretendGPU() as gpu:
        ...  # .to(DEVICE), torch.zeros(..., device=DEVICE) make tensors of it

An operation on tensors of both devices raises `MixedDevices`, but for what CUDA lets through: copies, indices that lie
on the CPU, and CPU tensors without dimensions in element-wise operations. `nccl()` makes collectives refuse CPU
tensors. Attention and autocast, which torch decides in C++, are imitated.

It cannot show what kernels compute, memory, NCCL itself, or safetensors, which wants to see the memory. torch knows
one more device type for the rest of the process, so use it in a process of its own (run.py).
"""

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from .imitated import attention, cast_by_autocast

NAME = "pretend"
# Operations that take a CPU tensor without dimensions for a number; these do not.
PRODUCTS = ["addmm", "bmm", "mm"]
LOOKUPS = ["embedding", "gather", "index_add", "index_copy", "index_select", "isin", "searchsorted"]
SCATTERS = ["masked_scatter", "scatter", "scatter_reduce"]
NO_NUMBERS = frozenset([*PRODUCTS, *LOOKUPS, *SCATTERS, "bincount", "cat", "stack"])
SIZED_BY_VALUES = ["_unique2", "bincount", "masked_select", "nonzero", "unique", "unique_dim"]
WAITING = frozenset([*SIZED_BY_VALUES, "_local_scalar_dense", "equal", "is_nonzero"])
INDEXING = frozenset(["index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put"])
COPIES = frozenset(["_to_copy", "copy_", "copy", "_copy_from"])


class MixedDevices(RuntimeError):
    """What CUDA says as "Expected all tensors to be on the same device"."""


class _Backend(backend_registration._DummyBackendModule):
    """What torch, accelerate and transformers ask of a device's module."""

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]

    def is_available(self):
        return True

    is_initialized = is_available

    def _is_in_bad_fork(self):
        return False

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def device(self, *args):
        return contextlib.nullcontext()

    def get_rng_state(self, *args):
        return torch.get_rng_state()

    def nothing(self, *args):
        pass

    set_device = synchronize = manual_seed_all = set_rng_state = empty_cache = nothing


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
_LIBRARY = torch.library.Library("_", "IMPL")  # autocast leaves operations alone that nothing here imitates
_LIBRARY.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
DEVICE = torch.device(NAME, 0)


class OnGPU(torch.Tensor):
    """A tensor that lies on `DEVICE`, and keeps its numbers in `inner` on the CPU."""

    is_cuda = True  # branches for CUDA are taken

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        shape = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "layout": inner.layout}
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=DEVICE, **shape)

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    def __repr__(self):
        return f"OnGPU({self.inner!r})"

    def __deepcopy__(self, memo):
        copied = memo[id(self)] = OnGPU(self.inner.detach().clone()).requires_grad_(self.requires_grad)
        copied._is_param = isinstance(self, torch.nn.Parameter)
        return copied

    def __reduce_ex__(self, protocol):
        return torch.Tensor.to, (self.inner.detach().clone(), DEVICE)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class PretendGPU(TorchDispatchMode):
    """
    Inside the block, tensors of `DEVICE` can be made, and are watched.

    Attributes:
        waits (`Counter`):
            How often the host waited, by kind and place in a source file.
    """

    active: "PretendGPU | None" = None

    def __init__(self):
        super().__init__()
        self.waits = Counter()
        self._functions = _Functions()

    def __enter__(self):
        PretendGPU.active = self
        # Backward passes on a thread of the device's own would leave the mode.
        self._threads = torch.autograd.set_multithreading_enabled(False)
        self._threads.__enter__()
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._functions.__exit__(*error)
        self._threads.__exit__(*error)
        PretendGPU.active = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})

    def wait(self, kind: str) -> None:
        """Count a wait."""
        self.waits[kind, _place()] += 1


def _place() -> str:
    """Innermost file and line of a package that could have written the operation otherwise."""
    for frame in reversed(traceback.extract_stack()):
        parts = Path(frame.filename).parts
        package = next((name for name in ("tempo_trl", "trl", "transformers", "accelerate") if name in parts), None)
        if package:
            return "/".join((package, *parts[len(parts) - parts[::-1].index(package) :])) + f":{frame.lineno}"
    return "elsewhere"


def _run(func, args: tuple, kwargs: dict):
    """An operation of torch, as a machine with a GPU would run it."""
    name = func._schema.name.split("::")[1]
    tensors = _tensors((args, kwargs))
    there = [x for x in tensors if isinstance(x, OnGPU)]
    here = [x for x in tensors if not isinstance(x, OnGPU)]
    base, to_gpu = name.rstrip("_"), _ends_on_gpu(name, args, kwargs, there)
    if there and here and name not in COPIES:
        _refuse_mixed(func, base, args, there, here)
    if there and PretendGPU.active:
        _count_waits(base, args, to_gpu)
    result = func(*_mapped(_inner, args), **_mapped(_inner, _on_the_cpu(kwargs)))
    if not to_gpu:
        return result
    return _wrapped(func, args, kwargs, there, result)


def _ends_on_gpu(name: str, args: tuple, kwargs: dict, there: list) -> bool:
    if name in COPIES - {"_to_copy"}:
        return isinstance(args[0], OnGPU)
    device = kwargs.get("device")
    return bool(there) if device is None else torch.device(device).type == NAME


def _refuse_mixed(func, base: str, args: tuple, there: list, here: list) -> None:
    refused = here
    if base in INDEXING and isinstance(args[0], OnGPU):
        indices = _tensors(args[1])
        refused = [x for x in here if x.dim() and not any(x is index for index in indices)]
    elif base not in NO_NUMBERS:
        refused = [x for x in here if x.dim()]
    if refused:
        raise MixedDevices(
            f"Expected all tensors to be on the same device: {func} got {_shapes(refused)} on the CPU and "
            f"{_shapes(there)} on the GPU."
        )


def _shapes(tensors: list[torch.Tensor]) -> list[tuple]:
    return [tuple(tensor.shape) for tensor in tensors]


def _count_waits(base: str, args: tuple, to_gpu: bool) -> None:
    if base in ("_to_copy", "copy") and not to_gpu:
        PretendGPU.active.wait("copy to the host")
    elif base in WAITING:
        PretendGPU.active.wait(base)
    elif base in INDEXING:
        indices = _tensors(args[1])
        if any(index.dtype == torch.bool or not isinstance(index, OnGPU) for index in indices):
            PretendGPU.active.wait("index by a mask or from the CPU")


def _inner(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.inner if isinstance(tensor, OnGPU) else tensor


def _tensors(value) -> list[torch.Tensor]:
    """Those among arguments. Like `_mapped` quicker than torch's `tree_map`, in which most of the time would go."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def _mapped(function, value):
    """Arguments or results with their tensors replaced."""
    if isinstance(value, dict):
        return {name: _mapped(function, part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_mapped(function, part) for part in value])
    return function(value) if isinstance(value, torch.Tensor) else value


def _on_the_cpu(kwargs: dict) -> dict:
    own = {"device": torch.device("cpu"), "pin_memory": False}
    return kwargs | {name: value for name, value in own.items() if kwargs.get(name)}


def _wrapped(func, args: tuple, kwargs: dict, there: list, result):
    """Results as tensors of the device: what was changed in place, or a view, is the tensor that it was."""
    known = {id(x.inner): x for x in there}

    def wrap(value):
        return value if isinstance(value, OnGPU) else known[id(value)] if id(value) in known else OnGPU(value)

    if not there:  # a copy of a tensor that stays on the CPU has memory of its own
        inputs = {id(x) for x in _tensors((args, kwargs))}
        result = _mapped(lambda x: x.clone() if id(x) in inputs else x, result)
        return _mapped(wrap, result)
    return return_and_correct_aliasing(func, args, kwargs, _mapped(wrap, result))


GATHERS = ["all_gather", "all_gather_into_tensor", "all_to_all_single", "gather", "scatter"]
REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
COLLECTIVES = [*GATHERS, *REDUCTIONS, "broadcast", "recv", "send"]


@contextlib.contextmanager
def nccl() -> Iterator[None]:
    """Let collectives take the tensors of the pretend GPU, over gloo, and refuse those of the CPU, as NCCL does."""

    def only_gpu(collective):
        def call(*args, **kwargs):
            tensors = _tensors((args, kwargs))
            if any(not isinstance(tensor, OnGPU) for tensor in tensors):
                raise MixedDevices(f"No backend for the CPU: {collective.__name__} at {_place()}")
            with torch._C.DisableTorchFunction():  # `_Functions` would be asked, and come back to here
                return collective(*_mapped(_inner, args), **_mapped(_inner, kwargs))

        return call

    # As callers find them: what torch does for objects inside of them stays on the CPU.
    found = {name: only_gpu(getattr(torch.distributed, name)) for name in COLLECTIVES}
    with mock.patch.multiple(torch.distributed, **found):
        yield


class _Functions(TorchFunctionMode):
    """What torch decides before an operation is dispatched."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == NAME:
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        if not isinstance(first, OnGPU):
            return func(*args, **kwargs)
        if func is torch.Tensor.tolist:
            if PretendGPU.active:
                PretendGPU.active.wait("tolist")
            return first.inner.tolist()
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if func is torch.Tensor.data_ptr:
            return 1
        if func is torch.Tensor.pin_memory:
            return first
        if func is torch.nn.functional.scaled_dot_product_attention:
            return attention(NAME, *args, **kwargs)
        return func(*cast_by_autocast(NAME, func, args), **kwargs)
