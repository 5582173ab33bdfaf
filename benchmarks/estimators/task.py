"""A finite token tree with a tabular softmax policy: true values, advantages and policy gradient by enumeration.

States are numbered as in a heap: the prompt is 0, and token a leads from state n to state A n + 1 + a, where A is the
size of the vocabulary. So the A^t states after t tokens are adjacent, and every table has one row a state.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

SMALLEST_PROBABILITY = 1e-6  # of a token where the policy is all but certain: logits are finite


@dataclass(frozen=True)
class TokenTree:
    r"""
    Every completion of `depth` tokens, the policy that writes them and how often each of them succeeds.

    Args:
        logits (`np.ndarray` of shape `(N, A)`, float64):
            Of the tokens in each of the N states before the last token.
        success (`np.ndarray` of shape `(A ** depth,)`, float64):
            Probability that the reward of a finished completion is 1 instead of 0.
    """

    logits: np.ndarray
    success: np.ndarray

    @property
    def vocabulary(self) -> int:
        return self.logits.shape[1]

    @cached_property
    def depth(self) -> int:
        return round(np.log(len(self.success)) / np.log(self.vocabulary))

    def level(self, length: int) -> slice:
        """The states after so many tokens."""
        first = (self.vocabulary**length - 1) // (self.vocabulary - 1)
        return slice(first, first + self.vocabulary**length)

    @cached_property
    def policy(self) -> np.ndarray:
        """Probability of each token in each state, `(N, A)`."""
        weights = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    @cached_property
    def values(self) -> np.ndarray:
        r"""True value of each state, finished ones included: $V(s) = \sum_a \pi(a | s) V(sa)$, backwards from the end.

        Shape `(N + A ** depth,)`, float64, in units of reward; the first is the success rate of the policy.
        """
        values = np.concatenate([np.zeros(len(self.logits)), self.success])
        for length in range(self.depth - 1, -1, -1):
            here = self.level(length)
            after = values[self.level(length + 1)].reshape(-1, self.vocabulary)
            values[here] = (self.policy[here] * after).sum(axis=1)
        return values

    @cached_property
    def advantages(self) -> np.ndarray:
        """True advantage of each token in each state, A(s, a) = V(sa) - V(s): `(N, A)`."""
        return self.values[1:].reshape(-1, self.vocabulary) - self.values[: len(self.logits), None]

    @cached_property
    def reach(self) -> np.ndarray:
        """Probability that a completion passes each state before the last token, `(N,)`."""
        reach = np.ones(1)
        for length in range(self.depth - 1):
            here = self.level(length)
            reach = np.append(reach, (reach[here, None] * self.policy[here]).ravel())
        return reach

    @cached_property
    def tabular_gradient(self) -> np.ndarray:
        r"""Of the success rate by every logit, $\rho(s) \, \pi(a | s) \, A(s, a)$: `(N, A)`."""
        return self.reach[:, None] * self.policy * self.advantages

    @cached_property
    def gradient(self) -> np.ndarray:
        """The same pooled by depth and token, `(depth, A)`: by logits that all states of a depth share, as a network
        generalises over states."""
        return np.stack([self.tabular_gradient[self.level(length)].sum(axis=0) for length in range(self.depth)])

    def nodes(self, ids: np.ndarray) -> np.ndarray:
        """State after each number of tokens, `(B, depth)` to `(B, depth + 1)`."""
        nodes = np.zeros((len(ids), ids.shape[1] + 1), dtype=np.int64)
        for column in range(ids.shape[1]):
            nodes[:, column + 1] = self.vocabulary * nodes[:, column] + 1 + ids[:, column]
        return nodes

    def score(self, nodes: np.ndarray) -> np.ndarray:
        r"""$\nabla \log \pi$ of every token by the logits of its state: `(B, depth + 1)` states to `(B, depth, A)`."""
        taken = nodes[:, 1:] - self.vocabulary * nodes[:, :-1] - 1
        return np.eye(self.vocabulary)[taken] - self.policy[nodes[:, :-1]]

    def sharing(self, num_generations: int) -> np.ndarray:
        """Expected number of completions of a group in the state before each token of one of them, itself included."""
        shares = [np.square(self.reach[self.level(length)]).sum() for length in range(self.depth)]
        return 1 + (num_generations - 1) * np.array(shares)


@dataclass(frozen=True)
class Task:
    r"""
    A task with decisive tokens among irrelevant ones.

    Every decisive token has one right value, 0; each wrong one multiplies the success probability of the completion by
    1 - `importance`. All other tokens change nothing.

    Args:
        decisive (`tuple[int, ...]`):
            Columns of the decisive tokens.
        success (`float`):
            Success rate of the policy (at `spread` 0). It is set through the probability of a
            right decisive token, the same at each; the wrong ones share the rest.
        importance (`float` or `tuple[float, ...]`):
            How much a decisive token matters, above 0, of all alike or of each; at 1 one wrong token is failure.
        irrelevant (`float`):
            Entropy of the other tokens: a mixture of so much of the uniform distribution and the rest of token 0, from
            0 (all completions go one way but for the decisive tokens) to 1 (uniform).
        depth, vocabulary (`int`):
            Tokens of a completion, and different tokens.
        spread (`float`):
            Standard deviation of Gaussian noise on every logit of every state, so that states of a depth differ.
        seed (`int`):
            Of that noise.
    """

    decisive: tuple[int, ...]
    success: float = 0.4
    importance: float | tuple[float, ...] = 1.0
    irrelevant: float = 1.0
    depth: int = 10
    vocabulary: int = 2
    spread: float = 0.0
    seed: int = 0

    @property
    def importances(self) -> np.ndarray:
        return np.broadcast_to(self.importance, len(self.decisive))

    @cached_property
    def right(self) -> float:
        """Probability p of a right decisive token: the product of 1 - importance (1 - p) is the success rate."""

        def missing(p: float) -> float:
            return float(np.prod(1 - self.importances * (1 - p))) - self.success

        if not missing(0.0) < 0 < missing(1.0):
            raise ValueError(
                f"got `success` = {self.success}, expected at least {missing(0.0) + self.success:.3f}, the rate "
                "if every decisive token is wrong. Raise `importance`, or change `success`."
            )
        return brentq(missing, 0.0, 1.0, xtol=1e-15)

    @property
    def name(self) -> str:
        every = len(self.decisive) == self.depth
        return f"all {self.depth}" if every else ", ".join(str(column + 1) for column in self.decisive)

    def distributions(self) -> np.ndarray:
        """Probabilities of the tokens at each depth, before the spread: `(depth, A)`."""
        certain = np.eye(self.vocabulary)[0]
        rows = np.tile((1 - self.irrelevant) * certain + self.irrelevant / self.vocabulary, (self.depth, 1))
        wrong = (1 - self.right) / (self.vocabulary - 1)
        rows[list(self.decisive)] = np.where(certain == 1, self.right, wrong)
        return np.maximum(rows, SMALLEST_PROBABILITY)

    def tree(self) -> TokenTree:
        size = self.vocabulary ** np.arange(self.depth)
        logits = np.repeat(np.log(self.distributions()), size, axis=0)
        logits = logits + self.spread * np.random.default_rng(self.seed).standard_normal(logits.shape)
        return TokenTree(logits, self._success())

    def _success(self) -> np.ndarray:
        """Success probability of every completion, in the order of their states."""
        success = np.ones(self.vocabulary**self.depth)
        for column, importance in zip(self.decisive, self.importances, strict=True):
            token = np.arange(len(success)) // self.vocabulary ** (self.depth - 1 - column) % self.vocabulary
            success[token != 0] *= 1 - importance
        return success
