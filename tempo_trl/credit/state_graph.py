"""TEMPO's prefix values on a graph: the prefix tree in which equal states before a turn are one state."""

from typing import NamedTuple

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups, value_steps
from tempo_trl.credit.prefix_tree import FIRST_WINDOW, WIDENING, PrefixTree, build_prefix_tree
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
    before it and the turn's tokens so far. A completion that visits a state twice counts once. Where no state comes
    back, these are the TD errors of the prefix tree.

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
    segments, found = Segments.of(turns, lengths), torch.zeros(completion_ids.shape)
    if not len(segments.row):
        return found
    state = labels[segments.row, segments.turn]
    tree, rewards = _tree_of(completion_ids.cpu().numpy(), segments, state), outcome.detach().cpu().float()
    segment, token, td = value_steps(tree, rewards[segments.row], segments.row)
    found[segments.row[segment], segments.begin[segment] + token] = torch.from_numpy(td)
    silent = flat_groups(outcome, num_generations).repeat_interleave(num_generations) | outcome.isnan()
    return found.masked_fill_((turns < 0) | silent[:, None], 0.0)


def _tree_of(completion_ids: np.ndarray, segments: "Segments", state: np.ndarray) -> PrefixTree:
    """
    The prefix tree of segments, in which only those of one state share tokens: a state stands for a prompt.

    Most segments differ in their first tokens, so no more are compared until some do not.
    """
    width, lengths = FIRST_WINDOW, segments.end - segments.begin
    while True:
        ids = segments.tokens(completion_ids, min(width, lengths.max()))
        tree = build_prefix_tree(ids, np.minimum(lengths, width), len(state), state)
        if width >= lengths.max() or tree.lcp.max() < width:
            return tree
        width *= WIDENING


class Segments(NamedTuple):
    """
    The segments of a batch in reading order, S of them: a turn, and what is observed after it.

    Args:
        row, turn (`np.ndarray` of shape `(S,)`, int64):
            The turn.
        begin, end (`np.ndarray` of shape `(S,)`, int64):
            First column, and the column after the last one.
    """

    row: np.ndarray
    turn: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, turns: torch.Tensor, lengths: torch.Tensor) -> "Segments":
        """The segments of rows of these lengths with these turns."""
        starts = turn_starts(turns).numpy()
        row, turn = np.nonzero(starts >= 0)
        begin = starts[row, turn]
        last = np.append(row[1:] != row[:-1], True)
        return cls(row, turn, begin, np.where(last, lengths.numpy()[row], np.append(begin[1:], 0)))

    def tokens(self, completion_ids: np.ndarray, width: int) -> np.ndarray:
        """The first `width` tokens of each segment, `(S, width)`, with anything after its end."""
        column = np.minimum(self.begin[:, None] + np.arange(width), completion_ids.shape[1] - 1)
        return completion_ids[self.row[:, None], column]
