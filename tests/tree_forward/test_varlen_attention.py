"""The one call for GPUs, on stand-ins for its kernel: used where that is aligned to the last key, and only there."""

from functools import wraps

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.tree_forward.packed_rows import pack_rows
from tempo_trl.tree_forward.tree_attention import tree_attention
from tempo_trl.tree_forward.varlen_attention import attend_at_once, can_attend_at_once, is_aligned

from .batches import batches

HALF_ON_CPU = (torch.device("cpu"), torch.bfloat16, 16)


def kernel(first_query_at, kept=lambda behind, left: behind <= left):
    """A variable-length kernel whose queries stand among the keys of their row from `first_query_at` on."""

    def varlen_attn(query, key, value, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa):
        assert enable_gqa == (query.shape[1] != key.shape[1])
        assert (cu_q.diff().max(), cu_k.diff().max()) == (max_q, max_k)
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        rows = []
        for (q0, q1), (k0, k1) in zip(cu_q.unfold(0, 2, 1).tolist(), cu_k.unfold(0, 2, 1).tolist(), strict=True):
            place = torch.arange(q1 - q0)[:, None] + first_query_at(q1 - q0, k1 - k0)
            behind = place - torch.arange(k1 - k0)
            seen = behind >= 0 if window_size[0] < 0 else (behind >= 0) & kept(behind, window_size[0])
            scores = scale * torch.einsum("qhd,khd->hqk", query[q0:q1].float(), key[k0:k1].float())
            weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
            rows.append(torch.einsum("hqk,khd->qhd", weights, value[k0:k1].float()).to(query.dtype))
        return torch.cat(rows)

    return varlen_attn


LAST_KEY = kernel(lambda queries, keys: keys - queries)
FIRST_KEY = kernel(lambda queries, keys: 0)
OTHER_WINDOW = kernel(lambda queries, keys: keys - queries, kept=lambda behind, left: behind < left)


@pytest.fixture
def use(monkeypatch):
    def use(kernel):
        is_aligned.cache_clear()
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)

    yield use
    is_aligned.cache_clear()


def test_it_is_seen_to_be_right_within_autocast_too(use):
    @wraps(LAST_KEY)
    def kernel_of_its_own(*args, **kwargs):
        with torch.autocast("cpu", enabled=False):  # autocast does not reach into a kernel
            return LAST_KEY(*args, **kwargs)

    use(kernel_of_its_own)
    with torch.autocast("cpu", torch.bfloat16):
        assert is_aligned(*HALF_ON_CPU)


def failing(*args, **kwargs):
    raise RuntimeError("no kernel image is available for execution on the device")


def of_an_older_torch(query, key, value, cu_q, cu_k, max_q, max_k, is_causal=False, return_aux=None):
    raise AssertionError("not reached")


@pytest.mark.parametrize("other", [FIRST_KEY, OTHER_WINDOW, failing, of_an_older_torch])
def test_a_kernel_with_another_meaning_or_other_arguments_or_none_for_the_device_is_not(other, use):
    use(other)
    assert not is_aligned(*HALF_ON_CPU)


@pytest.mark.parametrize("wrong", ["query", "key", "value"])
def test_nor_is_one_whose_gradient_is_wrong(wrong, use):
    @wraps(LAST_KEY)
    def detached(query, key, value, *args, **kwargs):
        own = {"query": query, "key": key, "value": value}
        own[wrong] = own[wrong].detach() + 0.5 * (own[wrong] - own[wrong].detach())  # half of its gradient
        return LAST_KEY(*own.values(), *args, **kwargs)

    use(detached)
    assert not is_aligned(*HALF_ON_CPU)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_its_gradient_is_compared_whoever_asks_first(mode, use):
    use(LAST_KEY)
    with mode():
        assert is_aligned(*HALF_ON_CPU)


def test_memory_that_ran_out_says_nothing_about_it(use, monkeypatch):
    def out_of_memory(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    use(out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        is_aligned(*HALF_ON_CPU)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", LAST_KEY)
    assert is_aligned(*HALF_ON_CPU)


class OnGPU(torch.Tensor):
    """A tensor of the CPU that says it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(("kernel", "dtype", "slow"), [
    (LAST_KEY, torch.bfloat16, False),
    (FIRST_KEY, torch.bfloat16, True),
    (FIRST_KEY, torch.float32, False),  # no such kernel is for float32, and the tree was faster without one
])  # fmt: skip
def test_paths_remember_where_a_gpu_attends_row_by_row_in_half_precision(kernel, dtype, slow, use):
    use(kernel)
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]])
    paths = pack_rows(ids, torch.ones_like(ids), 2).paths
    stream = torch.randn(1, 2, sum(paths.tail_sizes), 16, dtype=dtype).as_subclass(OnGPU)
    tree_attention(stream, stream, stream, paths, scaling=0.3)
    assert paths.by_row == slow


def test_it_is_not_for_cpus_nor_full_precision_nor_values_of_another_size_than_their_keys(use):
    use(LAST_KEY)
    full = torch.randn(1, 2, 3, 16)
    for tensor in (full, full.bfloat16(), full.as_subclass(OnGPU)):
        assert not can_attend_at_once(tensor, tensor)
    query, value = (torch.randn(1, 2, 3, size, dtype=torch.bfloat16).as_subclass(OnGPU) for size in (16, 8))
    assert can_attend_at_once(query, query)
    assert not can_attend_at_once(query, value)


def of_torch_2_11(query, key, value, cu_q, cu_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
    """The same kernel with the arguments of torch 2.11, which knows no grouped heads."""
    assert query.shape[1] == key.shape[1] == value.shape[1]
    grouped = {"scale": scale, "window_size": window_size, "enable_gqa": False}
    return LAST_KEY(query, key, value, cu_q, cu_k, max_q, max_k, **grouped)


def test_one_without_grouped_heads_gets_as_many_key_heads_as_query_heads(use):
    use(of_torch_2_11)
    assert is_aligned(*HALF_ON_CPU)


@pytest.mark.parametrize("kernel", [LAST_KEY, of_torch_2_11])
@given(batch=batches(), window=st.sampled_from([None, 1, 3, 50]), key_heads=st.sampled_from([1, 2, 4]))
def test_one_call_is_the_rows_one_by_one(kernel, batch, window, key_heads):
    paths = pack_rows(*batch).paths
    number = sum(paths.tail_sizes)
    query, keys = torch.randn(1, 4, number, 8), torch.randn(2, 1, key_heads, number, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
        ours = attend_at_once(query, *(paths.gather(x, 2) for x in keys), paths, 0.3, window)
    expected = tree_attention(query, *keys, paths, scaling=0.3, sliding_window=window)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
