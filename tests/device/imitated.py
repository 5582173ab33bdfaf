"""Attention and autocast for a device that torch does not know, written out."""

import torch
from torch.utils._pytree import tree_map

MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.mm, torch.addmm)
IN_HALF_PRECISION = frozenset([torch.nn.functional.linear, *MATMULS])


def cast_by_autocast(device_type: str, func, args: tuple) -> tuple:
    """Arguments of `func` in the type in which autocast computes it."""
    if func not in IN_HALF_PRECISION or not torch.is_autocast_enabled(device_type):
        return args
    dtype = torch.get_autocast_dtype(device_type)
    return tree_map(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, args)


def attention(
    device_type: str, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """`scaled_dot_product_attention` in its definition."""
    if torch.is_autocast_enabled(device_type):
        query, key, value = (x.to(torch.get_autocast_dtype(device_type)) for x in (query, key, value))
    with torch.autocast(device_type, enabled=False):
        if enable_gqa:
            groups = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        scores = (query.float() @ key.float().mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        return torch.nan_to_num(scores.softmax(dim=-1)).to(query.dtype) @ value
