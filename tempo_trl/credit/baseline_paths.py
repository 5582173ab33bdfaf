"""Which completions the baseline of each token may use: all others of the group, or those outside its own branch."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.credit.prefix_tree import PrefixTree


@dataclass
class BaselinePaths:
    """
    Runs of tokens that have a baseline: path q is tokens `begin[q]` to `end[q] - 1` of row `row[q]`, and `others[q]`
    are the completions of its group that the baselines may use.

    Args:
        row, begin, end (`np.ndarray` of shape `(Q,)`, integer):
            As above.
        others (`np.ndarray` of shape `(Q, G)`, bool):
            Which completions of the row's group may be used.
    """

    row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    others: np.ndarray


def own_paths(tree: PrefixTree) -> tuple[BaselinePaths, None]:
    """One path per row, over all its tokens. The second result is None: the tokens are in reading order already."""
    rows, size = np.arange(len(tree.order)), tree.num_generations
    others = np.arange(size) != rows[:, None] % size
    return BaselinePaths(rows, np.zeros_like(rows), tree.lengths, others), None


def branch_paths(
    tree: PrefixTree, shared: np.ndarray, width: int, branches: torch.Tensor
) -> tuple[BaselinePaths, np.ndarray]:
    """One path per sampled segment, and the index of each row's tokens, in reading order, among the paths' tokens."""
    size, ids = tree.num_generations, _check_branches(branches, tree.lengths, width)
    starts = np.arange(width) < tree.lengths[:, None]
    starts[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    row, begin = np.nonzero(starts)
    end = np.append(begin, 0)[1:]  # where the row's next segment begins
    end = np.where(end > 0, end, tree.lengths[row])

    segment = np.stack([row // size, ids[row, begin]])
    _, first, path = np.unique(segment, axis=1, return_index=True, return_inverse=True)
    paths = BaselinePaths(row[first], begin[first], end[first], np.ones((len(first), size), dtype=bool))
    _check_shared(paths, path, row, begin, end, shared)
    paths.others[path, row % size] = False

    length = paths.end - paths.begin
    offset = np.cumsum(length) - length
    return paths, ranges(offset[path], length[path])


def ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """start[0], start[0] + 1, ... (`length[0]` numbers), start[1], ..."""
    return np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)


def _check_branches(branches: torch.Tensor, lengths: np.ndarray, width: int) -> np.ndarray:
    if branches.shape != (len(lengths), width) or branches.is_floating_point():
        raise ValueError(
            f"`branches` must be ({len(lengths)}, {width}) integers, one per token, got shape "
            f"{tuple(branches.shape)} and dtype {branches.dtype}."
        )
    ids = branches.detach().cpu().numpy().astype(np.int64)
    if (ids < 0)[np.arange(width) < lengths[:, None]].any():
        raise ValueError("`branches` must be at least 0 on every token within its row's length, got a negative id.")
    return ids


def _check_shared(
    paths: BaselinePaths, path: np.ndarray, row: np.ndarray, begin: np.ndarray, end: np.ndarray, shared: np.ndarray
) -> None:
    """Raise ValueError unless all rows with a segment have the same tokens in it, at the same columns."""
    size = shared.shape[1]
    common = shared[row // size, row % size, paths.row[path] % size]
    wrong = (begin != paths.begin[path]) | (end != paths.end[path]) | (common < end)
    if wrong.any():
        first, second = paths.row[path[wrong][0]], row[wrong][0]
        raise ValueError(
            f"got `branches` with the same id in rows {first} and {second}, which do not share that whole segment. "
            "Use the same id only for rows that share a sampled segment from its first to its last token, and start "
            "a new segment wherever rows branch."
        )
