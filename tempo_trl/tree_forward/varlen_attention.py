"""Attention over a packed stream in one variable-length call, for GPUs. Not run here: no GPU was at hand.

`torch.nn.attention.varlen.varlen_attn` attends in half precision on CUDA. That it aligns a row's last query with its
last key, where there are fewer queries than keys, its documentation does not say. So nothing rests on it before it was
seen: [`is_aligned`] compares a small case with its definition on the device at hand, results and gradients. The tests
run that check, and the call with it, on a stand-in for the kernel.
"""

from functools import cache
from itertools import accumulate

import torch

from tempo_trl.tree_forward.paths import Paths

HALF_PRECISION = (torch.bfloat16, torch.float16)


def can_attend_at_once(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the one call was seen to be right for tensors of this device, type and head size."""
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
    As [`~tempo_trl.tree_forward.tree_attention.tree_attention`], of the stream's queries
    `(1, heads, N, head_dim)` and the keys and values on each row's path: `(1, N, heads, head_dim)`.
    """
    from torch.nn.attention.varlen import varlen_attn  # not in every torch that transformers runs on

    tokens_first = [x[0].transpose(0, 1) for x in (query, torch.cat(keys, dim=2), torch.cat(values, dim=2))]
    bounds = [_bounds(sizes, query.device) for sizes in (paths.tail_sizes, paths.lengths)]
    longest = max(paths.tail_sizes), max(paths.lengths)
    sight = (-1 if window is None else window - 1, 0)  # tokens before and after one's own
    grouped = query.shape[1] != keys[0].shape[1]
    return varlen_attn(*tokens_first, *bounds, *longest, scale=scaling, window_size=sight, enable_gqa=grouped)[None]


def _bounds(sizes: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device)


@cache
def is_aligned(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the last two of five tokens see the four tokens up to the one and the five up to the other; run once.

    The same with a window of two, and with more heads of queries than of keys.
    """
    # Whatever the pass that asks: autocast would round the definition, too, and the gradients are compared.
    with torch.autocast(device.type, enabled=False), torch.inference_mode(False), torch.enable_grad():
        try:
            return _matches_its_definition(device, dtype, head_dim)
        except (ImportError, RuntimeError, TypeError, ValueError):  # not there, or not for this type or head size
            return False


def _matches_its_definition(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    generator = torch.Generator().manual_seed(0)  # of its own: what a run samples must not depend on this check
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
