"""Attention along the paths, against one softmax over a dense mask; and plain attention, left as it was."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.utils import _apply_to_tensors
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tempo_trl.tree_forward import tree_attention as tree_attention_module
from tempo_trl.tree_forward.packed_rows import pack_rows
from tempo_trl.tree_forward.tree_attention import _row_attention, attention, register_tree_attention, tree_attention

from .batches import batches
from .models import model_of


def seen(packed, window: int | None) -> torch.Tensor:
    """Which positions of the stream each one sees, `(N, N)`: of its row, up to itself, and inside the window."""
    number = packed.input_ids.shape[1]
    visible = torch.zeros(number, number, dtype=torch.bool)
    row_paths = packed.paths.gather(torch.arange(number), dim=0)
    for path, tail in zip(row_paths, packed.paths.tail_sizes, strict=True):
        for end in range(len(path) - tail, len(path)):
            begin = 0 if window is None else max(0, end + 1 - window)
            visible[path[end], path[begin : end + 1]] = True
    return visible


@given(batches(), st.permutations([None, 1, 2, 5, 50]), st.sampled_from([1, 2, 4]))
def test_each_token_attends_to_its_own_row_up_to_itself_and_within_the_window_of_each_layer(batch, windows, key_heads):
    packed = pack_rows(*batch)
    number = packed.input_ids.shape[1]
    query, keys = torch.randn(1, 4, number, 3), torch.randn(2, 1, key_heads, number, 3)
    key, value = keys.repeat_interleave(4 // key_heads, dim=2)
    for window in windows:
        ours = tree_attention(query, *keys, packed.paths, scaling=0.3, sliding_window=window)
        scores = (0.3 * query @ key.mT).masked_fill(~seen(packed, window), -torch.inf)
        torch.testing.assert_close(ours, (scores.softmax(dim=-1) @ value).transpose(1, 2), rtol=1e-4, atol=1e-5)


def test_under_autocast_it_attends_in_the_lower_precision_as_torch_does():
    paths = pack_rows(torch.arange(1, 9).repeat(2, 1), torch.ones(2, 8, dtype=torch.long), 4).paths
    query, key, value = torch.randn(3, 1, 4, sum(paths.tail_sizes), 8)
    with torch.autocast("cpu", torch.bfloat16):
        ours = tree_attention(query, key, value.bfloat16(), paths)
    assert ours.dtype == torch.bfloat16
    assert ours.equal(tree_attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), paths))


def test_fsdp_hands_the_paths_on_as_they_are():
    """It rebuilds what it can look into, to cast tensors: layers would note what they saw on copies."""
    paths = pack_rows(torch.ones(1, 8, dtype=torch.long), torch.ones(1, 8, dtype=torch.long), 4).paths
    assert _apply_to_tensors(torch.Tensor.bfloat16, {"tree": paths})["tree"] is paths


def test_without_a_tree_the_registered_attention_is_transformers_own_bit_for_bit():
    register_tree_attention()
    assert AttentionInterface()["sdpa"] is attention
    register_tree_attention()  # a second time: it must not call itself
    module = model_of("qwen3").model.layers[0].self_attn
    tensors = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()
    for given_mask in (mask, None):
        ours, _ = attention(module, *tensors, given_mask, scaling=0.1, dropout=0.0)
        plain, _ = sdpa_attention_forward(module, *tensors, given_mask, scaling=0.1, dropout=0.0)
        assert torch.equal(ours, plain)


@pytest.mark.parametrize("option", [{"dropout": 0.1}, {"softcap": 30.0}, {"s_aux": torch.ones(4)}])
def test_what_changes_the_scores_is_refused(option):
    packed = pack_rows(torch.tensor([[1, 2], [1, 3]]), torch.ones(2, 2), 1)
    stream = torch.randn(1, 4, packed.input_ids.shape[1], 8)
    with pytest.raises(ValueError, match="does not support"):
        tree_attention(stream, stream, stream, packed.paths, **option)


class OnGPU(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tail", [3, 2])
def test_on_a_gpu_keys_are_repeated_where_no_kernel_takes_groups_without_the_scores_memory(dtype, tail, monkeypatch):
    """That is in float32, and with a mask, which a tail has that is shorter than its row."""
    calls, plain = [], tree_attention_module.F.scaled_dot_product_attention

    def record(query, key, value, **options):
        calls.append((key.shape[1], options["enable_gqa"]))
        return plain(query, key, value, **options)

    monkeypatch.setattr(tree_attention_module.F, "scaled_dot_product_attention", record)
    monkeypatch.setattr(tree_attention_module, "can_attend_at_once", lambda *_: False)
    query = torch.randn(1, 4, 3, 8, dtype=dtype).as_subclass(OnGPU)[:, :, -tail:]
    keys = torch.randn(2, 1, 2, 3, 8, dtype=dtype).as_subclass(OnGPU)
    _row_attention(query, *keys, 0.3, None, {})
    repeated = dtype == torch.float32 or tail < 3
    assert calls == [(4, False) if repeated else (2, True)]
