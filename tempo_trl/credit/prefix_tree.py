"""P2T: the completions of a group as a prefix tree (TEMPO, section 4.1, https://huggingface.co/papers/2509.18314).

The tree is built without a walk over tokens. Rows are sorted, so that rows with a common prefix become neighbours. The
longest common prefixes (LCP) of neighbours then determine the whole tree: each maximal run of places whose LCPs are at
least d is a node at depth d, and a group of G rows has at most G - 1 such nodes besides its leaves.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from tempo_trl.credit.checks import check_ids, check_lengths


@dataclass(frozen=True)
class PrefixTree:
    """
    The prefix trees of several groups, in sorted order.

    A place is a position in `order`. Node j contains the rows at places `start[j]` to `stop[j] - 1`: they share their
    first `depth[j]` tokens, and no other row of the group shares more than `top[j]` tokens with them. So node j
    represents the states after `top[j] + 1` to `depth[j]` tokens. States of a single row are not stored.

    Args:
        num_generations (`int`):
            Rows in a group.
        lengths (`np.ndarray` of shape `(R,)`):
            True length of each row, in tokens.
        order (`np.ndarray` of shape `(R,)`):
            Row at each place; the places of group k are kG to (k + 1)G - 1.
        lcp (`np.ndarray` of shape `(R,)`):
            Number of tokens that the row at a place shares with the row at the previous place; -1 if even their
            prompts differ: at the first place of a group, and of each of its prompts.
        start, stop, top, depth (`np.ndarray` of shape `(N,)`):
            The nodes that at least two rows share, children before their parents.
        longest_shared_prefix (`np.ndarray` of shape `(R,)`):
            Number of tokens that each place's row shares with the closest other row of its prompt, -1 without one.
    """

    num_generations: int
    lengths: np.ndarray
    order: np.ndarray
    lcp: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    top: np.ndarray
    depth: np.ndarray
    longest_shared_prefix: np.ndarray

    def num_children(self) -> np.ndarray:
        """Distinct next tokens at each node's last state; a completion that ends there adds none. Shape `(N,)`."""
        lengths, nodes = self.lengths[self.order], zip(self.start, self.stop, self.depth, strict=True)
        parts = [1 + (self.lcp[a + 1 : b] == d).sum() - (lengths[a:b] == d).sum() for a, b, d in nodes]
        return np.array(parts, dtype=np.int64)


def prefix_tree(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    num_generations: int,
    prompts: torch.Tensor | None = None,
) -> PrefixTree:
    """Check the tensors of a batch and build its prefix trees. Arguments and errors as in [`prefix_values`]."""
    check_ids(completion_ids, num_generations)
    check_lengths(completion_lengths, *completion_ids.shape)
    if prompts is not None and (prompts.shape != completion_ids.shape[:1] or prompts.is_floating_point()):
        raise ValueError(
            f"`prompts` must be ({len(completion_ids)},) integers, one per completion, got shape "
            f"{tuple(prompts.shape)} and dtype {prompts.dtype}."
        )
    return build_prefix_tree(
        completion_ids.detach().cpu().numpy(),
        completion_lengths.detach().cpu().numpy().astype(np.int64),
        num_generations,
        None if prompts is None else prompts.detach().cpu().numpy(),
    )


def build_prefix_tree(
    completion_ids: np.ndarray, lengths: np.ndarray, num_generations: int, prompts: np.ndarray | None = None
) -> PrefixTree:
    """
    Build the prefix tree of each group.

    Args:
        completion_ids (`np.ndarray` of shape `(R, T)`, integer):
            Token ids, right-padded with any id: only the first `lengths[r]` of row r are read.
        lengths (`np.ndarray` of shape `(R,)`, integer):
            True length of each row, 0 to T.
        num_generations (`int`):
            Rows in a group; the rows of a group are adjacent.
        prompts (`np.ndarray` of shape `(R,)`, integer, *optional*):
            Numbers that are equal for rows of a group with the same prompt. Rows with different prompts share no
            state, even if their tokens are equal. By default a group has one prompt.

    Returns:
        [`PrefixTree`]
    """
    order, lcp = sort_rows(completion_ids, lengths, num_generations, prompts)
    closest = np.maximum(lcp, np.append(lcp[1:], -1))
    return PrefixTree(num_generations, lengths, order, lcp, *_intervals(lcp), closest)


def sort_rows(
    completion_ids: np.ndarray, lengths: np.ndarray, num_generations: int, prompts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """
    Sort the rows of each group so that equal prefixes become neighbours, a row before those that are prefixes of it.
    This determines the tree. Arguments as in [`build_prefix_tree`].

    Returns:
        `order` and `lcp`, each of shape `(R,)`, as in [`PrefixTree`].
    """
    prompts = np.zeros(len(lengths), dtype=np.int64) if prompts is None else prompts

    def key(row: int) -> tuple[int, bytes]:
        # Bytes are compared fast, and their order, though not that of numbers, brings equal prefixes together.
        return prompts[row], completion_ids[row, : lengths[row]].tobytes()

    groups = (range(first, first + num_generations) for first in range(0, len(lengths), num_generations))
    order = [row for group in groups for row in sorted(group, key=key, reverse=True)]
    lcp = np.full(len(order), -1)
    for place, (above, row) in enumerate(pairwise(order), start=1):
        if place % num_generations and prompts[above] == prompts[row]:
            length = min(lengths[above], lengths[row])
            differs = completion_ids[above, :length] != completion_ids[row, :length]
            lcp[place] = differs.argmax() if differs.any() else length
    return np.array(order, dtype=np.int64), lcp


def _intervals(lcp: np.ndarray) -> np.ndarray:
    """
    The nodes that the LCPs of neighbours enclose: start, stop, top and depth as in [`PrefixTree`], `(4, N)`.

    The LCP at a place is the depth of a node that begins at the last smaller LCP before it and ends at the next
    smaller one after it. A stack of open nodes finds them in time linear in the number of rows.
    """
    nodes, open_nodes = [], []  # open ones as (depth, start), deepest last: until a smaller LCP comes
    for place, shared in enumerate([*lcp.tolist(), -1]):
        start = place - 1
        while open_nodes and open_nodes[-1][0] > shared:
            depth, start = open_nodes.pop()
            parent_depth = open_nodes[-1][0] if open_nodes else -1
            nodes.append((start, place, max(shared, parent_depth), depth))
        if shared >= 0 and (not open_nodes or open_nodes[-1][0] < shared):
            open_nodes.append((shared, start))
    return np.array(nodes, dtype=np.int64).reshape(-1, 4).T


def tree_sums(tree: PrefixTree, counted: np.ndarray) -> dict[str, tuple[float, float]]:
    """
    Numerator and denominator of the `tempo/*` metrics of the tree's shape, over the counted rows: whole groups.

    `branch_nodes`: states with at least two different next tokens, per group. `branch_depth`: their mean depth in
    tokens. `shared_prefix`: mean number of tokens that a completion shares with the closest other one.
    `unique_tokens`: nodes of the trees / tokens. `duplicates`: completions that repeat an earlier one / completions.
    """
    branching = (tree.num_children() > 1) & counted[tree.start]
    lengths, lcp = tree.lengths[tree.order], tree.lcp
    repeats = lcp == np.maximum(lengths, np.append(0, lengths[:-1]))
    shared = tree.longest_shared_prefix[counted].clip(min=0).sum()
    completions, tokens = counted.sum(), lengths[counted].sum()
    return {
        "branch_nodes": (branching.sum(), completions / tree.num_generations),
        "branch_depth": (tree.depth[branching].sum(), branching.sum()),
        "shared_prefix": (shared, completions),
        "unique_tokens": (tokens - lcp[counted].clip(min=0).sum(), tokens),
        "duplicates": (repeats[counted].sum(), completions),
    }
