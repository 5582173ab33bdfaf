"""Attention over a packed stream in one variable-length call, for GPUs.

`torch.nn.attention.varlen.varlen_attn` supports half precision on CUDA: torch 2.11 without grouped heads, torch 2.13
with them. Its documentation does not say that it aligns a row's last query with its last key where there are fewer
queries than keys. [`is_aligned`] therefore checks this before the first use: it compares results and gradients of a
small case with the definition, on the device of the run. Tests run that check and the call with a stand-in for the
kernel. On the one GPU that was here an earlier form of the check turned the kernel down; it has not run on a GPU since
its repair.
"""

import inspect
from collections.abc import Callable
from functools import cache
from itertools import accumulate

import torch

from tempo_trl.tree_forward.paths import Paths

HALF_PRECISION = (torch.bfloat16, torch.float16)


def can_attend_at_once(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the variable-length call passed its check for tensors of this device, dtype and head size."""
    if not query.is_cuda or query.dtype not in HALF_PRECISION or query.shape[-1] != value.shape[-1]:
        return False
    return is_aligned(query.device, query.dtype, query.shape[-1])


def attend_at_once(
    query: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    paths: Paths,
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    """
    Like [`~tempo_trl.tree_forward.tree_attention.tree_attention`], from the stream's queries
    `(1, heads, N, head_dim)` and the keys and values on each row's path. Returns `(1, N, heads, head_dim)`.
    """
    from torch.nn.attention.varlen import varlen_attn  # not in every version of torch that transformers supports

    tokens_first = [x[0].transpose(0, 1) for x in (query, torch.cat(keys, dim=2), torch.cat(values, dim=2))]
    bounds = [_bounds(sizes, query.device) for sizes in (paths.tail_sizes, paths.lengths)]
    longest = max(paths.tail_sizes), max(paths.lengths)
    sight = (-1 if window is None else window - 1, 0)  # tokens before and after the token itself
    groups, grouped = query.shape[1] // keys[0].shape[1], {}
    if _groups_heads(varlen_attn):
        grouped = {"enable_gqa": groups > 1}
    elif groups > 1:  # torch 2.11
        tokens_first[1:] = (x.repeat_interleave(groups, dim=1) for x in tokens_first[1:])
    return varlen_attn(*tokens_first, *bounds, *longest, scale=scaling, window_size=sight, **grouped)[None]


@cache  # asked in every layer
def _groups_heads(kernel: Callable) -> bool:
    return "enable_gqa" in inspect.signature(kernel).parameters


def _bounds(sizes: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device)


@cache
def is_aligned(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether two queries for five keys are aligned to the last two keys, so that they attend to four and five keys.

    Also checks a window of two, and more query heads than key heads. The result is cached.
    """
    # Independent of the caller's context: autocast would round the definition, too, and gradients are compared.
    with torch.autocast(device.type, enabled=False), torch.inference_mode(False), torch.enable_grad():
        try:
            return _matches_its_definition(device, dtype, head_dim)
        except torch.OutOfMemoryError:  # a RuntimeError, which says nothing about the kernel
            raise
        except (ImportError, RuntimeError, TypeError, ValueError):  # missing, or dtype or head size not supported
            return False


def _matches_its_definition(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    generator = torch.Generator().manual_seed(0)  # a separate one: sampling in the run must not depend on this check
    sizes = {"query": (1, 4, 2, head_dim), "key": (1, 2, 5, head_dim), "value": (1, 2, 5, head_dim)}
    inputs = [torch.randn(size, generator=generator).to(device, dtype).requires_grad_() for size in sizes.values()]
    upstream = torch.randn(1, 4, 2, head_dim, generator=generator).to(device)
    query, key, value = inputs
    paths = Paths(tail_sizes=[2], piece_sizes=[3, 2], pieces=[[0, 1]], lengths=[5])
    behind = torch.arange(3, 5, device=device)[:, None] - torch.arange(5, device=device)
    for window in (None, 2):
        scores = query.float() @ key.repeat_interleave(2, dim=1).float().mT / head_dim**0.5
        hidden = (behind < 0) | (behind >= (window or 5))
        expected = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ value.repeat_interleave(2, dim=1).float()
        ours = attend_at_once(query, [key], [value], paths, head_dim**-0.5, window).transpose(1, 2)
        results = [ours.float(), *torch.autograd.grad((ours.float() * upstream).sum(), inputs)]
        wanted = [expected, *torch.autograd.grad((expected * upstream).sum(), inputs)]
        pairs = zip(results, wanted, strict=True)
        if not all(torch.allclose(a.float(), b.float(), rtol=2e-2, atol=2e-2) for a, b in pairs):
            return False
    return True
