"""The tabular policy as a sampler: many prefixes at once, and in the form that grown trees ask for."""

from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.estimators.task import TokenTree
from tempo_trl.rollout.growth import Continuation, Request, Rules, Top


class AnyTokenEndsAThought:
    """The tokenizer of a tree without text: entropy trees may split behind every token."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        return "." * len(token_ids)


def rules_of(tree: TokenTree) -> Rules:
    """A completion ends with its last token; there is no end-of-sequence token."""
    return Rules(max_tokens=tree.depth, tokenizer=AnyTokenEndsAThought())


class TabularSampler:
    """
    Samples the policy of a tree: a [`~tempo_trl.rollout.growth.Sampler`].

    Args:
        tree ([`TokenTree`]):
            What is sampled.
        rng (`np.random.Generator`):
            Where the tokens are drawn from.
    """

    def __init__(self, tree: TokenTree, rng: np.random.Generator):
        self.tree, self.rng = tree, rng
        self._below = np.cumsum(tree.policy, axis=1)[:, :-1]
        with np.errstate(divide="ignore"):
            self._logps = np.log(tree.policy)
        self._likeliest = np.argsort(-self._logps, axis=1, kind="stable")

    def continued(self, nodes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """States on the way from each of `nodes`, `(M,)`, for `lengths` tokens: `(M, longest + 1)`.

        -1 stands past the end of a row.
        """
        path = np.full((len(nodes), lengths.max(initial=0) + 1), -1)
        path[:, 0] = nodes
        for step in range(path.shape[1] - 1):
            on = np.flatnonzero(lengths > step)
            here = path[on, step]
            token = (self.rng.random(len(on))[:, None] >= self._below[here]).sum(axis=1)
            path[on, step + 1] = self.tree.vocabulary * here + 1 + token
        return path

    def rewards(self, leaves: np.ndarray) -> np.ndarray:
        """Bernoulli draws of the success probability of finished completions, `(M,)`."""
        return (self.rng.random(len(leaves)) < self.tree.values[leaves]).astype(np.float64)

    def sample(self, requests: Sequence[Request], top_k: int = 0) -> list[list[Continuation]]:
        """As [`~tempo_trl.rollout.growth.Sampler`]: `n` continuations of each request. Its prompt is not read."""
        times = [request.n for request in requests]
        nodes = np.repeat([self._node(request.path_ids) for request in requests], times).astype(np.int64)
        path = self.continued(nodes, np.repeat([request.max_tokens for request in requests], times).astype(np.int64))
        answers = iter(self._continuations(path, top_k))
        return [[next(answers) for _ in range(n)] for n in times]

    def _node(self, path_ids: list[int]) -> int:
        node = 0
        for token in path_ids:
            node = self.tree.vocabulary * node + 1 + token
        return node

    def _continuations(self, path: np.ndarray, top_k: int) -> list[Continuation]:
        """Of all rows at once: there are many short ones."""
        before, tokens = path[:, :-1], (path[:, 1:] - 1) % self.tree.vocabulary
        before = np.minimum(before, len(self._logps) - 1)  # past the end of a shorter row: cut off below
        logps = np.take_along_axis(self._logps[before], tokens[..., None], axis=2)[..., 0]
        lengths = (path[:, 1:] >= 0).sum(axis=1).tolist()
        tops = self._tops(before, top_k) if top_k else None
        return [
            Continuation(ids[:length], chosen[:length], False, tops and Top(*tops)[row][:length])
            for row, (ids, chosen, length) in enumerate(zip(tokens.tolist(), logps.tolist(), lengths, strict=True))
        ]

    def _tops(self, before: np.ndarray, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self._likeliest[before][..., :top_k]
        logps = np.take_along_axis(self._logps[before], ids, axis=2)
        return torch.from_numpy(ids), torch.from_numpy(logps).float()
