"""Similarity of prefixes: the definition in loops, its range, and a hash that no process may change."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit import similarity
from tempo_trl.credit.similarity import Sketch, ngram_buckets, prefix_similarities

from .groups import PAD, as_tensors, groups

SKETCHES = st.builds(
    Sketch,
    st.integers(1, 3),
    st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from([3, 64]),
)


def similarities_of(rows, num_generations, sketch, prompts=None) -> np.ndarray:
    ids, lengths, _ = as_tensors(rows, [0.0] * len(rows))
    return prefix_similarities(ids, lengths, num_generations, sketch, prompts).numpy()


def sketch_by_definition(row: list[int], sketch: Sketch) -> dict[int, float]:
    counts = Counter()
    for order in sketch.orders:
        for end in range(order, len(row) + 1):
            gram = np.array([row[end - order : end]])
            counts[int(ngram_buckets(gram, order, sketch.buckets)[0, -1])] += 1
    return {bucket: math.sqrt(count) for bucket, count in counts.items()}


def cosine(a: dict, b: dict) -> float:
    norm = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
    return sum(x * b.get(bucket, 0.0) for bucket, x in a.items()) / norm if norm else 0.0


@settings(max_examples=100)
@given(groups(), SKETCHES)
def test_similarities_are_those_of_the_definition(case, sketch):
    rows, _, size = case
    computed = similarities_of(rows, size, sketch)
    for index, depth in enumerate(sketch.depths(max(map(len, rows)))):
        for group, start in enumerate(range(0, len(rows), size)):
            mates = rows[start : start + size]
            whole = [sketch_by_definition(row, sketch) for row in mates]
            expected = [[cosine(sketch_by_definition(row[:depth], sketch), other) for other in whole] for row in mates]
            np.testing.assert_allclose(computed[group, :, :, index], expected, atol=2e-6)


@pytest.mark.parametrize(("block", "width"), [(1, 0), (1, 40), (2, 100), (4, 8192), (16, 700), (3, 1)])
def test_depths_are_dense_at_first_and_reach_the_end_at_steps_of_an_eighth(block, width):
    depths = Sketch(block).depths(width)
    assert depths[0] == 0
    assert depths[-1] >= width > (depths[-2] if len(depths) > 1 else -1)
    steps = np.diff(depths)
    assert (steps >= block).all()
    assert (steps <= np.maximum(block, depths[:-1] / 8)).all()
    assert len(depths) <= 18 + 8 * max(0, math.log2(max(width, 1) / (16 * block)) + 1)


@given(groups(), SKETCHES, st.sampled_from([1, 7, 100]))
def test_memory_bounds_change_nothing(case, sketch, held):
    rows, _, size = case
    whole, before = similarities_of(rows, size, sketch), similarity.HELD_AT_ONCE
    try:
        similarity.HELD_AT_ONCE = held
        np.testing.assert_allclose(similarities_of(rows, size, sketch), whole, atol=1e-6)
    finally:
        similarity.HELD_AT_ONCE = before


@given(groups(), SKETCHES)
def test_any_power_is_positive_semi_definite_over_whole_completions(case, sketch):
    rows, _, size = case
    similar = similarities_of(rows, size, sketch).astype(float)
    assert similar.min() >= 0
    assert similar.max() <= 1
    for power in (1, 2, 4, 8):
        assert np.linalg.eigvalsh(similar[..., -1] ** power).min() > -1e-4


@given(groups(), SKETCHES, st.integers(0, 10), st.integers(0, 3))
def test_padding_is_never_read(case, sketch, pad, extra):
    rows, _, size = case
    ids, lengths, _ = as_tensors(rows, [0.0] * len(rows))
    repadded = torch.full((len(rows), ids.shape[1] + extra), pad)
    for row, tokens in enumerate(rows):
        repadded[row, : len(tokens)] = torch.tensor(tokens)
    other, depths = prefix_similarities(repadded, lengths, size, sketch), len(sketch.depths(ids.shape[1]))
    np.testing.assert_allclose(other[..., :depths], similarities_of(rows, size, sketch), atol=1e-6)


def test_other_prompts_are_not_similar():
    rows = [[1, 2, 3]] * 3
    similar = similarities_of(rows, 3, Sketch(1), torch.tensor([0, 1, 0]))[0]
    np.testing.assert_allclose(similar[..., -1], [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-6)
    assert not similar[..., 0].any()


def test_buckets_are_the_same_in_every_process_and_for_every_dtype():
    script = (
        "import numpy as np; from tempo_trl.credit.similarity import ngram_buckets; "
        "print(ngram_buckets(np.array([[7, 8, 151643, 7, 8]]), 2, 1024)[0, 1:].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for dtype in (np.int32, np.int64):
        here = ngram_buckets(np.array([[7, 8, 151643, 7, 8]], dtype=dtype), 2, 1024)[0, 1:].tolist()
        assert done.stdout.strip() == str(here)
    assert here[0] == here[3]
    assert len(set(here)) == 3


def test_buckets_are_evenly_filled():
    filled = np.bincount(ngram_buckets(np.arange(64_000)[None], 2, 64)[0, 1:], minlength=64)
    assert 800 < filled.min() < filled.max() < 1200


@pytest.mark.parametrize("wrong", [{"block": 0}, {"buckets": 0}, {"orders": ()}, {"orders": (0, 1)}])
def test_a_sketch_of_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="at least 1, got Sketch"):
        Sketch(**wrong)


def test_a_length_beyond_the_row_is_refused():
    with pytest.raises(ValueError, match="between 0 and T = 2"):
        prefix_similarities(torch.full((2, 2), PAD), torch.tensor([2, 3]), 2)
