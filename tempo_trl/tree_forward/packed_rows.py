"""Pack rows of tokens into one stream, and unpack values computed on the stream into rows."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.credit.prefix_tree import sort_rows
from tempo_trl.tree_forward.paths import Paths, Run, lay_paths

IGNORED = -100  # label of a position whose prediction is not needed


@dataclass(frozen=True)
class PackedRows:
    """
    A batch of rows in one stream of N tokens that contains each shared prefix once.

    The rows are sorted, and each row adds the tokens that it does not share with the previous row. The last shared
    token is repeated, because its next token differs between the two rows and a position has only one label.

    Args:
        input_ids (`torch.Tensor` of shape `(1, N)`):
            Token ids.
        position_ids (`torch.Tensor` of shape `(1, N)`):
            Position of each token in its row.
        labels (`torch.Tensor` of shape `(1, N)`):
            The next token of the row if its prediction is needed, else -100.
        predictors (`torch.Tensor` of shape `(B, T)`):
            Packed position that predicts each of the last T columns of the batch, -1 on padding.
        paths ([`Paths`]):
            Positions of the rows in the stream.
        num_tokens (`int`):
            Tokens of the batch, without padding.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor
    predictors: torch.Tensor
    paths: Paths
    num_tokens: int

    def unpack(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the predictions, `(N,)`, arranged by the predicted tokens, `(B, T)`; 0 on padding."""
        return values[self.predictors.clamp(min=0)].masked_fill(self.predictors < 0, 0.0)


def pack_rows(input_ids: torch.Tensor, attention_mask: torch.Tensor, width: int) -> PackedRows:
    """
    Pack a batch. Whole rows are compared, prompts included. Rows may be equal, or prefixes of each other.

    Args:
        input_ids (`torch.Tensor` of shape `(B, L)`, integer):
            Token ids, padded on either side.
        attention_mask (`torch.Tensor` of shape `(B, L)`):
            0 on padding. The tokens of a row must be adjacent.
        width (`int`):
            Number T of columns, from the right, to predict. Less than L.

    Returns:
        [`PackedRows`], on the device of `input_ids`.

    Raises:
        ValueError: if the shapes do not fit, no row has a token, or a row's tokens are not adjacent.
    """
    _check(input_ids, attention_mask, width)
    ids, inside = input_ids.cpu().numpy(), attention_mask.cpu().numpy() != 0
    first, lengths = inside.argmax(axis=1), inside.sum(axis=1)
    _check_adjacent(inside, first, lengths)
    rows = _shifted_left(ids, first, int(lengths.max()))
    order, lcp = sort_rows(rows, lengths, len(rows))

    # A row without a token is a prefix of every other and comes last among its equals: it adds nothing to the stream.
    kept = lengths[order] > 0
    order, starts = order[kept], np.clip(lcp[kept] - 1, 0, None)
    paths, runs = lay_paths(starts.tolist(), lengths[order].tolist())
    position = np.full(ids.shape, -1)
    position[inside] = _positions(runs, order, len(ids))
    predictors = np.where(inside, np.pad(position, ((0, 0), (1, 0)), constant_values=-1)[:, :-1], -1)[:, -width:]

    stream, depth = _tails(rows, order, starts, lengths)
    labels = np.full(len(stream), IGNORED)
    labels[predictors[predictors >= 0]] = ids[:, -width:][predictors >= 0]
    device = input_ids.device
    tensors = [torch.from_numpy(x.astype(np.int64)).to(device) for x in (stream[None], depth[None], labels[None])]
    return PackedRows(*tensors, torch.from_numpy(predictors).to(device), paths, int(lengths.sum()))


def _shifted_left(ids: np.ndarray, first: np.ndarray, longest: int) -> np.ndarray:
    """Rows that begin with their first token."""
    columns = first[:, None] + np.arange(longest)
    return np.take_along_axis(ids, np.minimum(columns, ids.shape[1] - 1), axis=1)


def _positions(runs: list[list[Run]], order: np.ndarray, rows: int) -> np.ndarray:
    """Packed position of every token, row by row in the order of the batch."""
    of_row = [np.zeros(0, dtype=np.int64)] * rows
    for row, path in zip(order.tolist(), runs, strict=True):
        of_row[row] = np.concatenate([np.arange(begin, end) for begin, end in path])
    return np.concatenate(of_row)


def _tails(rows: np.ndarray, order: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Tokens and depths of the stream, `(N,)` each."""
    columns = np.arange(rows.shape[1])
    tail = (columns >= starts[:, None]) & (columns < lengths[order, None])
    return rows[order][tail], np.broadcast_to(columns, tail.shape)[tail]


def _check(input_ids: torch.Tensor, attention_mask: torch.Tensor, width: int) -> None:
    if input_ids.ndim != 2 or input_ids.shape != attention_mask.shape:
        raise ValueError(
            f"`input_ids` and `attention_mask` must both be (B, L), got {tuple(input_ids.shape)} and "
            f"{tuple(attention_mask.shape)}."
        )
    if not 0 < width < input_ids.shape[1]:
        raise ValueError(
            f"`width` must be between 1 and L - 1 = {input_ids.shape[1] - 1}, got {width}: no column precedes the "
            "first one, so it cannot be predicted."
        )


def _check_adjacent(inside: np.ndarray, first: np.ndarray, lengths: np.ndarray) -> None:
    if not lengths.any():
        raise ValueError("`attention_mask` must have a token in at least one row, got none.")
    last = inside.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
    gaps = np.flatnonzero((lengths > 0) & (last - first + 1 != lengths))
    if len(gaps):
        raise ValueError(
            f"`attention_mask` must have the tokens of a row adjacent, got padding between those of row {gaps[0]}."
        )
