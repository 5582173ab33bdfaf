"""Where the rows of a packed stream lie in it: a row's own tail, behind pieces that belong to rows before it."""

from itertools import accumulate, pairwise

import torch

Run = tuple[int, int]  # packed positions, from the first number to before the second


class Paths:
    """
    The paths of R rows through a packed stream of N tokens, which is the concatenation of their tails.

    This is not a dataclass, because FSDP rebuilds dataclasses to cast their fields: each layer would get a copy, and
    its entries in `masks` and `windows` would be lost.

    Row r's path is the row's tokens in order: some pieces of the tails of earlier rows, then its own tail. A path
    contains whole pieces only, so a tensor of the stream can be split into pieces once for all paths.

    Args:
        tail_sizes (`list[int]`):
            Tokens of each row's tail, at least 1, with sum N.
        piece_sizes (`list[int]`):
            Tokens of each piece, in the order of the stream, with sum N.
        pieces (`list[list[int]]`):
            Indices of the pieces of each row's path, in reading order.
        lengths (`list[int]`):
            Tokens of each row's path.

    Attributes:
        masks (`dict`):
            Attention masks for these sizes, cached for the next layer.
        windows (`list`):
            The sliding window of every attention call over these paths, as the model requested it.
        is_masked (`bool`):
            Whether an attention call got a mask that the model has made.
        is_missed (`bool`):
            Whether an attention call of the forward pass did not get these paths.
        by_row (`bool`):
            Whether a GPU attended row by row in half precision, where one call for all rows would be faster.
    """

    def __init__(
        self, tail_sizes: list[int], piece_sizes: list[int], pieces: list[list[int]], lengths: list[int]
    ) -> None:
        self.tail_sizes, self.piece_sizes = tail_sizes, piece_sizes
        self.pieces, self.lengths = pieces, lengths
        self.masks: dict = {}
        self.windows: list[int | None] = []
        self.is_masked = self.is_missed = False
        self.by_row = False

    def gather(self, stream: torch.Tensor, dim: int) -> list[torch.Tensor]:
        """The parts of a stream tensor on each row's path, along `dim`: R tensors of `lengths[r]` tokens."""
        split = stream.split(self.piece_sizes, dim=dim)  # once: the gradient of a slice is as long as the stream
        return [torch.cat([split[i] for i in row], dim=dim) for row in self.pieces]


def lay_paths(starts: list[int], lengths: list[int]) -> tuple[Paths, list[list[Run]]]:
    """
    Lay out rows, where row r begins with the first `starts[r]` tokens of row r - 1.

    Args:
        starts (`list[int]`):
            Tokens that each row takes from the previous row: 0 for the first, less than the row's length for all.
        lengths (`list[int]`):
            Tokens of each row, at least 1.

    Returns:
        The [`Paths`], and each row's path as runs of packed positions.
    """
    tail_sizes = [length - start for start, length in zip(starts, lengths, strict=True)]
    runs: list[list[Run]] = []
    for start, tail in zip(starts, pairwise(accumulate(tail_sizes, initial=0)), strict=True):
        runs.append([*_first(start, runs[-1] if runs else []), tail])
    cuts = sorted({cut for row in runs for run in row for cut in run})
    index = {cut: i for i, cut in enumerate(cuts)}
    pieces = [[i for begin, end in row for i in range(index[begin], index[end])] for row in runs]
    return Paths(tail_sizes, [end - begin for begin, end in pairwise(cuts)], pieces, lengths), runs


def _first(tokens: int, runs: list[Run]) -> list[Run]:
    """The first `tokens` positions of `runs`, as runs."""
    taken = []
    for begin, end in runs:
        if tokens <= 0:
            break
        taken.append((begin, min(end, begin + tokens)))
        tokens -= end - begin
    return taken
