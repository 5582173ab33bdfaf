"""Ways to sample with a budget of tokens: independent completions, and grown trees.

A batch never generates more tokens than its budget. A token that several completions of a grown tree share counts
once.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from benchmarks.estimators.sampler import TabularSampler, rules_of
from benchmarks.estimators.task import TokenTree
from tempo_trl.credit import PrefixTree
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.rollout import EntropyTree, FixedTree, GrownTree
from tempo_trl.rollout.growth import Grower, grow
from tempo_trl.rollout.tree import Branches, branches, row_weights


@dataclass(eq=False)
class Sample:
    """
    Batches of completions, one after the other.

    Args:
        ids (`torch.Tensor` of shape `(B, T)`, int64), rewards (`torch.Tensor` of shape `(B,)`, float64):
            The completions of all batches and their rewards, 0 or 1; rows of a group are adjacent.
        nodes (`np.ndarray` of shape `(B, T + 1)`):
            Their states in the tree.
        num_generations (`int`):
            Completions in a group.
        bounds (`np.ndarray` of shape `(batches + 1,)`):
            Batch k holds the rows `bounds[k]` to `bounds[k + 1] - 1`.
        tokens (`np.ndarray` of shape `(batches,)`):
            Tokens that were generated for each batch.
        trees (`list[GrownTree]`, *optional*):
            The trees that the groups were grown as.
    """

    ids: torch.Tensor
    rewards: torch.Tensor
    nodes: np.ndarray
    num_generations: int
    bounds: np.ndarray
    tokens: np.ndarray
    trees: list[GrownTree] | None = None

    @property
    def lengths(self) -> torch.Tensor:
        return torch.full((len(self.ids),), self.ids.shape[1])

    @cached_property
    def prefixes(self) -> PrefixTree:
        """The prefix trees of the groups: every credit begins with them."""
        return prefix_tree(self.ids, self.lengths, self.num_generations)

    @cached_property
    def branches(self) -> Branches:
        """The trees that were grown, as tensors."""
        return branches(self.trees, self.ids.shape[1])

    @cached_property
    def leaf_weights(self) -> torch.Tensor | None:
        """Weights of the completions in their groups, as trainers have them by default; None where all are alike."""
        return None if self.trees is None else row_weights(self.trees, "by_branch")

    def batch(self, k: int) -> "Sample":
        """One of the batches alone."""
        rows, size = slice(*self.bounds[k : k + 2]), self.num_generations
        return Sample(
            self.ids[rows],
            self.rewards[rows],
            self.nodes[rows],
            size,
            np.array([0, rows.stop - rows.start]),
            self.tokens[k : k + 1],
            self.trees and self.trees[rows.start // size : rows.stop // size],
        )


class Rollout(Protocol):
    """A way to spend tokens."""

    def sample(self, tree: TokenTree, budget: int, batches: int, rng: np.random.Generator) -> Sample:
        """So many batches, none of more than `budget` generated tokens."""
        ...


@dataclass(frozen=True)
class Independent:
    """Groups of completions that are sampled independently."""

    num_generations: int

    def sample(self, tree: TokenTree, budget: int, batches: int, rng: np.random.Generator) -> Sample:
        rows = self.num_generations * _fitting(budget, self.num_generations * tree.depth)
        sampler, total = TabularSampler(tree, rng), rows * batches
        nodes = sampler.continued(np.zeros(total, dtype=np.int64), np.full(total, tree.depth))
        return Sample(
            torch.from_numpy((nodes[:, 1:] - 1) % tree.vocabulary),
            torch.from_numpy(sampler.rewards(nodes[:, -1])),
            nodes,
            self.num_generations,
            np.arange(batches + 1) * rows,
            np.full(batches, rows * tree.depth),
        )


@dataclass(frozen=True)
class Fixed:
    """Trees of [`~tempo_trl.rollout.FixedTree`] with `children` ** `levels` leaves, in steps of equal length."""

    children: int
    levels: int

    def sample(self, tree: TokenTree, budget: int, batches: int, rng: np.random.Generator) -> Sample:
        step = math.ceil(tree.depth / self.levels)  # as the trainer's default
        return _grown(FixedTree(self.children, self.levels, step), tree, budget, batches, rng)


@dataclass(frozen=True)
class Entropy:
    """Trees of [`~tempo_trl.rollout.EntropyTree`] with up to `leaves` leaves.

    Lengths are the trainer's default scaled down to short completions: a sibling for coverage from twice the shortest
    segment on, as 300 is to 150. Every token ends a thought. The threshold is in nats.
    """

    leaves: int
    shortest: int = 2
    threshold: float = 0.3

    def sample(self, tree: TokenTree, budget: int, batches: int, rng: np.random.Generator) -> Sample:
        lengths = {"min_segment_tokens": self.shortest, "coverage_tokens": 2 * self.shortest}
        grower = EntropyTree(self.leaves, entropy_threshold=self.threshold, **lengths)
        return _grown(grower, tree, budget, batches, rng)


def _fitting(budget: int, tokens: int) -> int:
    if budget < tokens:
        raise ValueError(f"got a budget of {budget} tokens, expected at least the {tokens} of one group. Raise it.")
    return budget // tokens


def _grown(grower: Grower, tree: TokenTree, budget: int, batches: int, rng: np.random.Generator) -> Sample:
    """Trees in the order they grew: one that does not fit into its batch any more begins the next."""
    sampler, trees, cuts = TabularSampler(tree, rng), [], [0]
    most = grower.num_generations * tree.depth
    _fitting(budget, most)
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**62)))  # of the choices of entropy trees
        while len(cuts) <= batches:
            missing = (batches + 1 - len(cuts)) * math.ceil(budget / most)
            trees += grow(grower, [[]] * missing, rules_of(tree), sampler)
            cuts = _cuts([grown.num_tokens() for grown in trees], budget)
    trees, bounds = trees[: cuts[batches]], np.array(cuts[: batches + 1])
    tokens = np.add.reduceat([grown.num_tokens() for grown in trees], bounds[:-1])
    ids = torch.tensor([grown.completion_ids(leaf) for grown in trees for leaf in grown.rows])
    nodes, size = tree.nodes(ids.numpy()), grower.num_generations
    return Sample(
        ids, torch.from_numpy(_leaf_rewards(trees, nodes, sampler)), nodes, size, bounds * size, tokens, trees
    )


def _cuts(tokens: list[int], budget: int) -> list[int]:
    """First tree of every batch that is full: the next tree would be too much for it."""
    cuts, total = [0], 0
    for index, number in enumerate(tokens):
        if total + number > budget:
            cuts.append(index)
            total = 0
        total += number
    return cuts


def _leaf_rewards(trees: list[GrownTree], nodes: np.ndarray, sampler: TabularSampler) -> np.ndarray:
    """One draw a leaf: a completion that is handed over twice has one reward."""
    firsts = np.concatenate([[grown.rows.index(leaf) for leaf in grown.rows] for grown in trees])
    sizes = np.cumsum([0] + [len(grown.rows) for grown in trees])
    assert all(after - before == sizes[1] for before, after in pairwise(sizes))
    return sampler.rewards(nodes[:, -1])[firsts + np.repeat(sizes[:-1], sizes[1])]
