"""Attention over a packed stream: the queries of a row's tail attend to the row's whole path."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from tempo_trl.tree_forward.paths import Paths
from tempo_trl.tree_forward.varlen_attention import HALF_PRECISION, attend_at_once, can_attend_at_once

IMPLEMENTATION = "sdpa"  # the attention implementation of transformers that is extended
REFUSED = ("softcap", "s_aux", "position_bias")  # arguments that change the scores in ways that are not supported here
UNREAD = torch.ones(1, 1, 1, 1, dtype=torch.bool)  # transformers passes a mask of four dimensions on as it is

_plain = None  # transformers' own attention, once ours is registered
_watching: Paths | None = None  # those of the forward pass that runs


def register_tree_attention() -> None:
    """
    Let `model(..., tree=paths)` attend along [`Paths`], in every model with "sdpa" attention. Call it once.

    It replaces the registered "sdpa" function by one that calls the original unless it gets `tree`. No model is
    changed, and generation and reference models work as before. Gradient checkpointing also works: it recomputes a
    layer in the backward pass with the arguments of the forward pass. If a model's implementation were switched during
    the forward pass instead, checkpointing would silently recompute with the wrong one.
    """
    global _plain
    registered = AttentionInterface()[IMPLEMENTATION]
    if registered is not attention:
        _plain = registered
        AttentionInterface.register(IMPLEMENTATION, attention)


def attention(module, query, key, value, attention_mask, tree: Paths | None = None, **options):
    """The function that transformers calls in each layer. `tree` is passed through from the call of the model."""
    if tree is None:
        if _watching is not None:
            _watching.is_missed = True
        return _plain(module, query, key, value, attention_mask, **options)
    tree.is_masked |= attention_mask is None or attention_mask.shape != UNREAD.shape
    return tree_attention(query, key, value, tree, **options), None


@contextmanager
def watched(paths: Paths) -> Iterator[None]:
    """Notes in `paths` whether an attention call in the block did not get them."""
    global _watching
    _watching = paths
    try:
        yield
    finally:
        _watching = None


def tree_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    paths: Paths,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    **options,
) -> torch.Tensor:
    """
    Causal attention of every token over its own row: one call of `scaled_dot_product_attention` per row, or one for
    all rows on GPUs in half precision ([`~tempo_trl.tree_forward.varlen_attention`]).

    Args:
        query, key, value (`torch.Tensor` of shape `(1, heads, N, head_dim)`):
            The stream; keys and values may have fewer heads.
        paths ([`Paths`]):
            Positions of the rows in the stream.
        scaling (`float`, *optional*):
            Factor of the scores. Defaults to 1 / sqrt(head_dim).
        sliding_window (`int`, *optional*):
            Number of tokens that a token attends to, including itself, counted along its row. Defaults to all.
        dropout (`float`, *optional*, defaults to `0.0`):
            Must be 0: shared tokens are computed once, so rows would share their noise.

    Returns:
        `torch.Tensor` of shape `(1, N, heads, head_dim)`.

    Raises:
        ValueError: for dropout and for options that change the scores (soft-capping, sinks, position biases).
    """
    refused = [name for name in REFUSED if options.get(name) is not None] + ["dropout"] * (dropout > 0)
    if refused:
        raise ValueError(
            f"Attention on the tree does not support {', '.join(refused)}. Unset it, or set tree_forward='off'."
        )
    paths.windows.append(sliding_window)
    if torch.is_autocast_enabled(query.device.type):  # norms and rotations return float32; cast as attention would
        query, key, value = (x.to(torch.get_autocast_dtype(x.device.type)) for x in (query, key, value))
    keys, values = paths.gather(key, 2), paths.gather(value, 2)
    if can_attend_at_once(query, value):
        return attend_at_once(query, keys, values, paths, scaling, sliding_window)
    paths.by_row |= query.is_cuda and query.dtype in HALF_PRECISION
    rows = zip(query.split(paths.tail_sizes, dim=2), keys, values, strict=True)
    outputs = [_row_attention(*row, scaling, sliding_window, paths.masks) for row in rows]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


def _row_attention(query, key, value, scaling, window, masks: dict) -> torch.Tensor:
    """Attention of a row's last tokens over the row."""
    if window is not None:  # no query attends to keys further back
        reach = query.shape[2] + window - 1
        key, value = key[:, :, -reach:], value[:, :, -reach:]
    tail, length = query.shape[2], key.shape[2]
    causal = tail == length and (window is None or window >= tail)  # torch aligns `is_causal` to the upper left
    mask = None if causal else _mask(tail, length, window, query.device, masks)
    groups = query.shape[1] // key.shape[1]
    # With grouped heads and a mask, or in float32, CUDA has no kernel that avoids materializing the scores.
    if groups > 1 and query.is_cuda and (mask is not None or query.dtype == torch.float32):
        key, value, groups = (*(x.repeat_interleave(groups, dim=1) for x in (key, value)), 1)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scaling, enable_gqa=groups > 1
    )


def _mask(tail: int, length: int, window: int | None, device: torch.device, masks: dict) -> torch.Tensor:
    """Which of `length` tokens each of the last `tail` tokens attends to, `(1, 1, tail, length)`."""
    if (tail, length, window) not in masks:
        columns = torch.arange(length, device=device)
        behind = columns[-tail:, None] - columns
        seen = (behind >= 0) & (behind < (window or length))
        masks[tail, length, window] = seen[None, None]
    return masks[tail, length, window]
