"""Grow trees in rounds: in each round a sampler continues all open nodes at once."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from transformers import PreTrainedTokenizerBase

from tempo_trl.credit.grown_tree import GrownTree


class Request(NamedTuple):
    """
    A request for continuations of a node.

    Args:
        prompt_ids (`list[int]`):
            Token ids of the prompt.
        path_ids (`list[int]`):
            Token ids of the completion up to the node.
        n (`int`):
            Number of continuations.
        max_tokens (`int`):
            Maximum length of a continuation, in tokens, at least 1.
    """

    prompt_ids: list[int]
    path_ids: list[int]
    n: int
    max_tokens: int

    @property
    def prefix_ids(self) -> list[int]:
        """The tokens to continue."""
        return [*self.prompt_ids, *self.path_ids]


class Top(NamedTuple):
    """The most likely tokens at each position of a continuation, the most likely first.

    Args:
        token_ids (`torch.Tensor` of shape `(T, K)`, int64):
            The tokens.
        logprobs (`torch.Tensor` of shape `(T, K)`, float32):
            Their log-probabilities under the sampling distribution: minus infinity, or very low, for tokens that it
            excludes.
    """

    token_ids: torch.Tensor
    logprobs: torch.Tensor

    def __getitem__(self, positions: slice) -> "Top":
        return Top(self.token_ids[positions], self.logprobs[positions])


@dataclass
class Continuation:
    """
    One continuation of a prefix.

    Args:
        token_ids (`list[int]`):
            Its T >= 1 tokens, with the end-of-sequence token if one was sampled.
        logprobs (`list[float]`, *optional*):
            Log-probability of each under the distribution sampled from, after temperature and truncation.
        stopped (`bool`):
            Whether the completion ends here, by an end-of-sequence token or a stop string, instead of at the limit.
        top ([`Top`], *optional*):
            The most likely tokens at each of the T positions, if requested.
    """

    token_ids: list[int]
    logprobs: list[float] | None = None
    stopped: bool = False
    top: Top | None = None


class Sampler(Protocol):
    """Continues prefixes. Every rank must take part in every call, with an empty list if it has no requests."""

    def sample(self, requests: Sequence[Request], top_k: int = 0) -> list[list[Continuation]]:
        """The continuations of each request, with the `top_k` most likely tokens of each position if above 0."""
        ...


@dataclass
class Rules:
    """
    Rules for every completion of a run.

    Args:
        max_tokens (`int`):
            Maximum length of a completion, in tokens.
        eos_token_ids (`Sequence[int]`):
            Tokens that end a completion.
        stop_strings (`Sequence[str]`):
            Texts that end a completion as soon as its decoded tokens, including special ones, contain one.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            Decodes the tokens.
        greedy (`bool`):
            Whether the most likely token is taken instead of a sampled one.
    """

    max_tokens: int
    eos_token_ids: Sequence[int] = ()
    stop_strings: Sequence[str] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    greedy: bool = False

    def is_over(self, path_ids: list[int]) -> bool:
        """Whether a completion of these tokens ends with the last of them."""
        ended = path_ids[-1] in self.eos_token_ids or self._has_stop_string(path_ids)
        return ended or len(path_ids) >= self.max_tokens

    def cut(self, request: Request, continuation: Continuation) -> Continuation:
        """The continuation up to its first stop string, which may begin in the path, where no sampler looks for it."""
        path, new = request.path_ids, continuation.token_ids
        if not self._has_stop_string(path + new):
            return continuation
        end = bisect_left(range(len(new)), True, key=lambda last: self._has_stop_string(path + new[: last + 1])) + 1
        logprobs, top = continuation.logprobs, continuation.top
        return replace(
            continuation,
            token_ids=new[:end],
            logprobs=logprobs and logprobs[:end],
            stopped=True,
            top=top and top[:end],
        )

    def _has_stop_string(self, token_ids: list[int]) -> bool:
        if not self.stop_strings:
            return False
        text = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return any(stop in text for stop in self.stop_strings)


class GrowingTree(ABC):
    """A tree while it grows. A subclass decides what to request and how to use the answers."""

    def __init__(self, prompt_ids: list[int], rules: Rules):
        self.prompt_ids, self.rules = prompt_ids, rules
        self.grown = GrownTree()

    @abstractmethod
    def requests(self) -> list[Request]:
        """The requests of this round; empty once the tree is complete."""

    @abstractmethod
    def take(self, answers: list[list[Continuation]]) -> None:
        """Add the continuations of this round's requests, in their order."""

    @abstractmethod
    def rows(self) -> list[int]:
        """Leaf of each completion for the trainer, `num_generations` of them."""

    def finished(self) -> GrownTree:
        """The complete tree, with its rows for the trainer."""
        self.grown.rows = self.rows()
        return self.grown


class Grower(Protocol):
    """
    A way to grow trees.

    Args:
        num_generations (`int`):
            Completions of a tree: the size of a group.
        top_k (`int`):
            Number of most likely tokens that it needs at each position.
    """

    num_generations: int
    top_k: int

    def start(self, prompt_ids: list[int], rules: Rules) -> GrowingTree:
        """A tree that contains only the prompt."""
        ...


def grow(
    grower: Grower,
    prompts: Sequence[list[int]],
    rules: Rules,
    sampler: Sampler,
    on_any_rank: Callable[[bool], bool] = bool,
) -> list[GrownTree]:
    """
    Grow one tree for each prompt.

    Args:
        grower ([`Grower`]):
            Decides the shape.
        prompts (`Sequence[list[int]]`):
            Token ids of this rank's prompts.
        rules ([`Rules`]):
            Rules by which a completion ends.
        sampler ([`Sampler`]):
            Continues prefixes: one call per round, for all open nodes of all trees.
        on_any_rank (`Callable[[bool], bool]`):
            Returns whether its argument is true on any rank. Called once per round on every rank, so that all ranks
            make the same number of rounds.

    Returns:
        `list[GrownTree]`: the trees, in the order of their prompts.
    """
    growing = [grower.start(prompt_ids, rules) for prompt_ids in prompts]
    while True:
        asked = [tree.requests() for tree in growing]
        requests = [request for of_tree in asked for request in of_tree]
        if not on_any_rank(bool(requests)):
            return [tree.finished() for tree in growing]
        answers = iter(sampler.sample(requests, grower.top_k))
        for tree, of_tree in zip(growing, asked, strict=True):
            tree.take([[rules.cut(request, continuation) for continuation in next(answers)] for request in of_tree])
