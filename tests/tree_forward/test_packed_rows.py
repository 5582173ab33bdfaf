"""Rows to the packed stream and back, against brute force on the trie."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given

from tempo_trl.tree_forward.packed_rows import IGNORED, pack_rows

from .batches import batches, prefixes, rows_of


def seen_by(packed) -> list[tuple[int, ...]]:
    """Tokens on the path up to each position of the stream, the position's own among them."""
    paths = packed.paths.gather(packed.input_ids, dim=1)
    seen = []
    for path, tail in zip(paths, packed.paths.tail_sizes, strict=True):
        tokens = tuple(path[0].tolist())
        seen += [tokens[: len(tokens) - tail + i + 1] for i in range(tail)]
    return seen


@given(batches())
def test_every_position_sees_its_own_prefix_and_no_other_token(batch):
    ids, mask, width = batch
    packed = pack_rows(ids, mask, width)
    seen = seen_by(packed)
    assert [prefix[-1] for prefix in seen] == packed.input_ids[0].tolist()
    assert [len(prefix) - 1 for prefix in seen] == packed.position_ids[0].tolist()
    assert set(seen) == prefixes(rows_of(ids, mask))


@given(batches())
def test_each_node_of_the_trie_stands_once_and_a_last_shared_token_again_for_each_row_that_parts_after_it(batch):
    ids, mask, width = batch
    packed = pack_rows(ids, mask, width)
    rows = sorted(rows_of(ids, mask))
    repeated = sum(a[:1] == b[:1] for a, b in pairwise(rows))
    assert packed.input_ids.shape[1] == len(prefixes(rows)) + repeated
    assert packed.num_tokens == sum(map(len, rows))
    assert sum(packed.paths.piece_sizes) == sum(packed.paths.tail_sizes) == packed.input_ids.shape[1]


@given(batches())
def test_each_scored_token_is_predicted_from_the_prefix_before_it_and_is_the_label_there(batch):
    ids, mask, width = batch
    packed = pack_rows(ids, mask, width)
    seen, predictors = seen_by(packed), packed.predictors
    assert torch.equal(predictors >= 0, mask[:, -width:].bool())
    asked = set()
    for row, inside, positions in zip(ids, mask.bool(), predictors, strict=True):
        for column in inside[-width:].nonzero().flatten().tolist():
            end = row.shape[0] - width + column
            position = positions[column].item()
            assert seen[position] == tuple(row[:end][inside[:end]].tolist())
            assert packed.labels[0, position] == row[end]
            asked.add(position)
    assert {i for i, label in enumerate(packed.labels[0].tolist()) if label != IGNORED} == asked


@given(batches())
def test_unpacking_reads_the_predictor_and_adds_up_gradients_of_shared_tokens(batch):
    ids, mask, width = batch
    packed = pack_rows(ids, mask, width)
    values = torch.randn(packed.input_ids.shape[1], requires_grad=True)
    rows = packed.unpack(values)
    assert rows.shape == (len(ids), width)
    assert torch.equal(rows == 0, mask[:, -width:] == 0)
    rows.sum().backward()
    count = torch.bincount(packed.predictors[packed.predictors >= 0], minlength=len(values))
    assert torch.equal(values.grad, count.to(values.dtype))


@pytest.mark.parametrize(
    ("mask", "width", "message"),
    [
        ([[1, 0, 1]], 1, "adjacent, got padding between those of row 0"),
        ([[0, 0, 0]], 1, "a token in at least one row"),
        ([[1, 1, 1]], 3, "between 1 and L - 1 = 2, got 3"),
        ([[1, 1]], 1, "must both be"),
    ],
)
def test_what_is_no_batch_of_rows_is_refused(mask, width, message):
    with pytest.raises(ValueError, match=message):
        pack_rows(torch.ones(1, 3, dtype=torch.long), torch.tensor(mask), width)
