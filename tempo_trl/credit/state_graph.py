"""TEMPO's prefix values on a graph: the prefix tree in which equal states before a turn are one state."""

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups, td_errors, tree_values
from tempo_trl.credit.inputs import prefix_tree
from tempo_trl.credit.turns import turn_starts


def graph_td_errors(
    completion_ids: torch.Tensor,
    lengths: torch.Tensor,
    turns: torch.Tensor,
    labels: np.ndarray,
    outcome: torch.Tensor,
    num_generations: int,
) -> torch.Tensor:
    """
    TD errors of TEMPO, where completions that come to the same state before a turn share it from there on.

    The value of a state is the mean outcome of the completions that visit it. The states within a turn are the state
    before it and the turn's tokens so far. If a completion visits a state twice, its first visit counts. Where no
    state comes back, these are the TD errors of the prefix tree.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`, integer):
            Token ids.
        lengths (`torch.Tensor` of shape `(R,)`, integer):
            True lengths in tokens.
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token; -1 for tokens of tools and environments and for padding.
        labels (`np.ndarray` of shape `(R, N)`, int64):
            Equal for visits of the same state ([`~tempo_trl.credit.anchors.state_labels`]).
        outcome (`torch.Tensor` of shape `(R,)`):
            Outcome advantages; NaN where unscorable.
        num_generations (`int`):
            Completions in a group.

    Returns:
        `torch.Tensor` of shape `(R, T)`, float32, on the CPU: 0 outside of turns, for unscorable completions, and in
        groups whose outcomes are all equal.
    """
    rows, width = completion_ids.shape
    row, begin, end = _segments(turns, lengths)
    ids = torch.zeros(labels.size, int((end - begin).max(initial=0)), dtype=completion_ids.dtype)
    place = row * labels.shape[1] + _within(row)  # segment n of a row
    inside = torch.arange(ids.shape[1]) < torch.from_numpy(end - begin)[:, None]
    columns = torch.from_numpy(begin)[:, None] + torch.arange(ids.shape[1])
    rows_of = torch.from_numpy(row)[:, None].expand_as(columns)
    filled = torch.zeros(len(row), ids.shape[1], dtype=ids.dtype)
    filled[inside] = completion_ids[rows_of[inside], columns[inside]]
    ids[place] = filled
    tokens = torch.zeros(labels.size, dtype=torch.int64)
    tokens[place] = torch.from_numpy(end - begin)

    tree = prefix_tree(ids, tokens, num_generations * labels.shape[1], torch.from_numpy(labels.ravel()))
    rewards = outcome.detach().cpu().float().repeat_interleave(labels.shape[1])
    values = tree_values(tree, rewards, ids.shape[1], torch.from_numpy(_first_visits(labels)).double())
    steps = td_errors(values, tokens)[place]
    found = torch.zeros(rows, width)
    found[rows_of[inside], columns[inside]] = steps[inside]
    silent = flat_groups(outcome, num_generations).repeat_interleave(num_generations) | outcome.isnan()
    return found.masked_fill_((turns < 0) | silent[:, None], 0.0)


def _segments(turns: torch.Tensor, lengths: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row and columns of the segments of each row: a turn and what is observed after it."""
    starts = turn_starts(turns).numpy()
    row, turn = np.nonzero(starts >= 0)
    begin = starts[row, turn]
    last = np.append(row[1:] != row[:-1], True)
    return row, begin, np.where(last, lengths.numpy()[row], np.append(begin[1:], 0))


def _within(row: np.ndarray) -> np.ndarray:
    """Number of each segment within its row."""
    return np.arange(len(row)) - np.searchsorted(row, row)


def _first_visits(labels: np.ndarray) -> np.ndarray:
    """1 for the first visit of a state by a row, 0 for later ones and where there is no turn: `(R * N,)`."""
    pairs = np.stack([np.repeat(np.arange(len(labels)), labels.shape[1]), labels.ravel()])
    first = np.zeros(labels.size)
    first[np.unique(pairs, axis=1, return_index=True)[1]] = 1.0
    return np.where(labels.ravel() >= 0, first, 0.0)
