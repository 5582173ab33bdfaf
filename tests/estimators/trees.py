"""Small token trees, one of them worked by hand."""

from itertools import product

import numpy as np
import torch

from benchmarks.estimators.rollouts import Sample
from benchmarks.estimators.task import TokenTree

# Two tokens of two kinds. The first is 0 with probability 3/4. After 0 the second is 0 with 1/2, after 1 with 1/4.
# Success of 00, 01, 10, 11: 1, 1/2, 1, 0.
HAND = TokenTree(np.log([[3 / 4, 1 / 4], [1 / 2, 1 / 2], [1 / 4, 3 / 4]]), np.array([1, 1 / 2, 1, 0]))


def random_tree(depth: int = 3, vocabulary: int = 3) -> TokenTree:
    rng = np.random.default_rng(0)
    states = (vocabulary**depth - 1) // (vocabulary - 1)
    return TokenTree(rng.standard_normal((states, vocabulary)), rng.random(vocabulary**depth))


def completions(tree: TokenTree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every completion, its probability and its success probability, by the definition."""
    ids = np.array(list(product(range(tree.vocabulary), repeat=tree.depth)))
    probability = np.array([np.prod([tree.policy[n, t] for n, t in steps(tree, row)]) for row in ids])
    return ids, probability, tree.success


def steps(tree: TokenTree, row: np.ndarray) -> list[tuple[int, int]]:
    """(state, token) along a completion."""
    node, result = 0, []
    for token in row:
        result.append((node, int(token)))
        node = tree.vocabulary * node + 1 + int(token)
    return result


def all_groups(tree: TokenTree, size: int) -> tuple[Sample, np.ndarray]:
    """Every group of `size` completions with every reward, a batch each, and the probabilities of the groups."""
    ids, probability, success = completions(tree)
    rows = [
        (row, reward, p * (s if reward else 1 - s))
        for row, p, s in zip(ids, probability, success, strict=True)
        for reward in (0.0, 1.0)
    ]
    groups = list(product(rows, repeat=size))
    flat = [row for group in groups for row in group]
    ids = np.array([row[0] for row in flat])
    sample = Sample(
        torch.from_numpy(ids),
        torch.tensor([row[1] for row in flat], dtype=torch.float64),
        tree.nodes(ids),
        size,
        np.arange(len(groups) + 1) * size,
        np.full(len(groups), size * tree.depth),
    )
    return sample, np.array([np.prod([row[2] for row in group]) for group in groups])
