"""The tree that a rollout grew for one prompt: segments of tokens, and the completions that consist of them."""

from dataclasses import dataclass, field
from itertools import accumulate

import torch


@dataclass
class Segment:
    """
    Tokens that were grown in one piece; a node of the tree.

    Args:
        parent (`int`):
            Index of the segment that it continues, -1 if it continues the prompt.
        token_ids (`list[int]`):
            Its tokens, at least one.
        logprobs (`list[float]`, *optional*):
            The log-probability of each token under the sampling distribution; None if not known.
        forced (`bool`):
            Whether its first token was chosen to differ from a sibling's instead of sampled.
        forced_ratio (`float`):
            Importance ratio of the policy to the distribution that token was drawn from, $\\pi(a) / \\mu(a)$; 1 for a
            sampled one.
    """

    parent: int
    token_ids: list[int]
    logprobs: list[float] | None = None
    forced: bool = False
    forced_ratio: float = 1.0


@dataclass
class GrownTree:
    """
    The tree that was grown for one prompt.

    Args:
        segments (`list[Segment]`):
            The nodes, parents before their children. A segment without children is a leaf: it ends a completion.
        rows (`list[int]`):
            Leaf of each completion that the trainer gets, as an index of `segments`. Every leaf occurs at least once;
            repeated leaves are repeated completions.
    """

    segments: list[Segment] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def children(self) -> list[list[int]]:
        """Children of each segment; the last entry (index -1) are those of the prompt."""
        children = [[] for _ in range(len(self.segments) + 1)]
        for index, segment in enumerate(self.segments):
            children[segment.parent].append(index)
        return children

    def leaves(self) -> list[int]:
        """Segments without children."""
        return [index for index, below in enumerate(self.children()[:-1]) if not below]

    def path(self, segment: int) -> list[int]:
        """Segments from the prompt to this one, inclusive."""
        path = []
        while segment >= 0:
            path.append(segment)
            segment = self.segments[segment].parent
        return path[::-1]

    def completion_ids(self, leaf: int) -> list[int]:
        """Token ids of the completion that ends in a leaf."""
        return [token for index in self.path(leaf) for token in self.segments[index].token_ids]

    def logprobs(self, leaf: int) -> list[float] | None:
        """The sampler's log-probabilities of that completion's tokens; None if a segment has none."""
        segments = [self.segments[index] for index in self.path(leaf)]
        if any(segment.logprobs is None for segment in segments):
            return None
        return [logprob for segment in segments for logprob in segment.logprobs]

    def num_tokens(self) -> int:
        """Number of tokens generated for the tree; a shared token counts once."""
        return sum(len(segment.token_ids) for segment in self.segments)

    def leaf_weights(self) -> torch.Tensor:
        r"""
        Weight of each completion in its group, `(rows,)`, float64, with sum 1.

        All children of a node have equal weight, so a leaf below nodes with $c_1, c_2, \dots$ children has weight
        $\prod_d 1 / c_d$. Completions of the same leaf share its weight.
        """
        children, share = self.children(), {-1: 1.0}
        for index, segment in enumerate(self.segments):
            share[index] = share[segment.parent] / len(children[segment.parent])
        return torch.tensor([share[leaf] / self.rows.count(leaf) for leaf in self.rows], dtype=torch.float64)


@dataclass
class Branches:
    """
    The grown trees of a batch as tensors, with one row per completion; rows of a tree are adjacent.

    Args:
        segment (`torch.Tensor` of shape `(B, T)`, int64):
            Segment of each token, numbered over the whole batch; -1 after a row's end.
        forced_ratio (`torch.Tensor` of shape `(B, T)`, float32):
            Importance ratio of the policy to the distribution that a token was drawn from: 1 except for forced tokens.
        parent (`torch.Tensor` of shape `(N,)`, int64):
            Parent of each segment. The prompts are numbered N, N + 1, ... in the order of the trees.
        leaf (`torch.Tensor` of shape `(B,)`, int64):
            Segment in which each row ends.
    """

    segment: torch.Tensor
    forced_ratio: torch.Tensor
    parent: torch.Tensor
    leaf: torch.Tensor


def branches(trees: list[GrownTree], width: int) -> Branches:
    """The trees of a batch as tensors of `width` columns."""
    offsets = [0, *accumulate(len(tree.segments) for tree in trees)]
    rows = [(tree, offset, leaf) for tree, offset in zip(trees, offsets, strict=False) for leaf in tree.rows]
    segments, ratio = torch.full((len(rows), width), -1), torch.ones(len(rows), width)
    for row, (tree, offset, leaf) in enumerate(rows):
        column = 0
        for index in tree.path(leaf):
            until = column + len(tree.segments[index].token_ids)
            segments[row, column:until] = offset + index
            if tree.segments[index].forced:
                ratio[row, column] = tree.segments[index].forced_ratio
            column = until
    parent = [
        offsets[-1] + prompt if segment.parent < 0 else offsets[prompt] + segment.parent
        for prompt, tree in enumerate(trees)
        for segment in tree.segments
    ]
    return Branches(segments, ratio, torch.tensor(parent), torch.tensor([offset + leaf for _, offset, leaf in rows]))


def row_weights(trees: list[GrownTree]) -> torch.Tensor | None:
    """Weight of each completion of a batch in its group, `(B,)`; None if all weights are equal."""
    weights = [tree.leaf_weights() for tree in trees]
    return None if all(torch.allclose(group, group[:1]) for group in weights) else torch.cat(weights)


def repeated_rows(trees: list[GrownTree]) -> torch.Tensor:
    """Completions that repeat the leaf of an earlier one, `(B,)`, bool."""
    return torch.tensor([leaf in tree.rows[:row] for tree in trees for row, leaf in enumerate(tree.rows)])
