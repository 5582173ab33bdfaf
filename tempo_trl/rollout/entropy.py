"""Trees that split where the policy is uncertain about the next token."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from tempo_trl.credit.checks import check_counts, check_number
from tempo_trl.credit.grown_tree import Segment
from tempo_trl.rollout.growth import Continuation, GrowingTree, Request, Rules, Top


@dataclass
class EntropyTree:
    """
    The tree of hierarchical TreeRPO (Tree Relative Policy Optimization, section 3.2): completions are sampled to
    their end, and split in two at gates. The sampled tokens after a gate become one child. The other child begins with
    a different token and is sampled to its end in the next round.

    A segment has a gate after the first token at which its text ends with a delimiter, that is at position
    `min_segment_tokens` or later and is followed by a token from a distribution with entropy above
    `entropy_threshold`. There is always a split before the first token. If no other token has a positive probability
    there, the second child is a plain second sample.

    A tree has at most `num_generations` leaves. Splits are made breadth-first by rounds. Within a round, gates with
    fewer tokens before them come first. When a tree has no more gates, every leaf segment longer than
    `coverage_tokens` gets an extra sibling, the longest first, while the tree has fewer than `num_generations` leaves.
    If there are fewer leaves than completions at the end, leaves are repeated in turn.

    Args:
        num_generations (`int`):
            Completions of a group, at least 2.
        max_depth (`int`):
            Maximum depth of a segment; children of the prompt have depth 1.
        min_segment_tokens (`int`):
            Minimum length of a segment that splits, in tokens.
        entropy_threshold (`float`):
            Entropy above which a segment splits, in nats, at least 0.
        top_k (`int`):
            The entropy is computed over this many most likely tokens of the sampling distribution, renormalized.
        delimiters (`Sequence[str]`):
            Texts that end a thought, ignoring spaces behind them within the last token.
        coverage_tokens (`int`, *optional*):
            Maximum length of a leaf segment without an extra sibling, in tokens, at least `min_segment_tokens`. None
            for no extra siblings.

    Raises:
        ValueError: if a number is too small.
    """

    num_generations: int
    max_depth: int = 7
    min_segment_tokens: int = 150
    entropy_threshold: float = 1.0
    top_k: int = 20
    delimiters: Sequence[str] = (".", "\n", "!", "?", ";", ":")
    coverage_tokens: int | None = None

    def __post_init__(self):
        check_counts(self, num_generations=2, max_depth=1, min_segment_tokens=1, top_k=2)
        check_number("entropy_threshold", self.entropy_threshold)
        if self.coverage_tokens is not None:
            check_counts(self, coverage_tokens=self.min_segment_tokens)  # shorter segments do not split
        self._delimiter_tokens = max((len(text.encode()) for text in self.delimiters), default=1)  # at most

    def most_leaves(self, max_tokens: int) -> int:
        """Leaves of a tree of completions of so many tokens that splits wherever it may."""
        levels = min(self.max_depth, 1 + (max_tokens - 1) // self.min_segment_tokens)
        is_covered = self.coverage_tokens is not None and max_tokens > self.coverage_tokens
        return 2 ** (levels + is_covered)

    def start(self, prompt_ids: list[int], rules: Rules) -> "GrowingEntropyTree":
        """A tree that contains only the prompt. Its choices use a generator seeded from torch's own."""
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        return GrowingEntropyTree(self, prompt_ids, rules, generator)

    def gates(self, token_ids: list[int], top: Top, rules: Rules) -> list[int]:
        """Lengths at which a segment of these tokens could split, shortest first."""
        uncertain = torch.nonzero(entropies(top, self.top_k) > self.entropy_threshold).flatten().tolist()
        return [
            length  # of the segment before the uncertain token
            for length in uncertain
            if length >= self.min_segment_tokens and self._ends_a_thought(token_ids[:length], rules)
        ]

    def _ends_a_thought(self, token_ids: list[int], rules: Rules) -> bool:
        text = rules.tokenizer.decode(token_ids[-self._delimiter_tokens :], skip_special_tokens=False)
        return text.rstrip(" ").endswith(tuple(self.delimiters))


def entropies(top: Top, top_k: int) -> torch.Tensor:
    """Entropy of the `top_k` most likely tokens, renormalized, at each position, in nats, `(T,)`."""
    return torch.special.entr(top.logprobs[:, :top_k].double().softmax(dim=-1)).sum(dim=-1)


class Forced(NamedTuple):
    """A token that had to differ from another, its log-probability, and the importance ratio of its draw."""

    token: int
    logprob: float
    ratio: float


def alternative(top: Top, taken: int, top_k: int, greedy: bool, generator: torch.Generator) -> Forced | None:
    """
    A token other than `taken` for the first position of `top`.

    It is drawn from the `top_k` most likely tokens, renormalized without `taken`; if `greedy`, it is the most likely
    of them. None if no other token has a positive probability. The importance ratio, the policy's probability over
    that of the draw, is the sum of the candidates' probabilities.
    """
    ids, logprobs = top.token_ids[0, :top_k], top.logprobs[0, :top_k]
    probabilities = logprobs.double().exp() * (ids != taken)
    if not probabilities.any():
        return None
    choice = probabilities.argmax() if greedy else torch.multinomial(probabilities, 1, generator=generator)
    return Forced(int(ids[choice]), float(logprobs[choice]), float(probabilities.sum()))


class Branch(NamedTuple):
    """A child to be grown below `parent`, with its first token if that is forced."""

    parent: int
    forced: Forced | None = None


class GrowingEntropyTree(GrowingTree):
    """One tree of [`EntropyTree`] while it grows."""

    def __init__(self, shape: EntropyTree, prompt_ids: list[int], rules: Rules, generator: torch.Generator):
        super().__init__(prompt_ids, rules)
        self.shape, self.generator = shape, generator
        self.tops: list[Top] = []  # of each segment, with a row of zeros for a forced token
        self.waiting = [Branch(-1)]  # asked for in the next round
        self.covered = False  # segments grown for coverage do not split

    def requests(self) -> list[Request]:
        paths = [self._path(branch) for branch in self.waiting]
        return [Request(self.prompt_ids, path, 1, self.rules.max_tokens - len(path)) for path in paths]

    def take(self, answers: list[list[Continuation]]) -> None:
        grown, self.waiting = self.waiting, []
        fresh = [self._add(branch, answer) for branch, (answer,) in zip(grown, answers, strict=True)]
        if self.covered:
            return
        if len(self.tops) == 1:
            self._grow_beside(0)
        self._split(fresh)
        if not self.waiting:
            self._cover()

    def rows(self) -> list[int]:
        leaves = self.grown.leaves()
        return sorted(leaves[row % len(leaves)] for row in range(self.shape.num_generations))

    def _path(self, branch: Branch) -> list[int]:
        path = self.grown.completion_ids(branch.parent)
        return path if branch.forced is None else [*path, branch.forced.token]

    def _has_room(self) -> bool:
        return len(self.grown.leaves()) + len(self.waiting) < self.shape.num_generations

    def _add(self, branch: Branch, continuation: Continuation) -> int:
        """The segment of a grown branch."""
        segment = Segment(branch.parent, continuation.token_ids, continuation.logprobs)
        top = continuation.top
        if branch.forced is not None:
            segment.token_ids = [branch.forced.token, *segment.token_ids]
            if segment.logprobs is not None:
                segment.logprobs = [branch.forced.logprob, *segment.logprobs]
            segment.forced, segment.forced_ratio = True, branch.forced.ratio
            top = Top(*(pad(rows, (0, 0, 1, 0)) for rows in top))  # no segment splits before its first token
        self.grown.segments.append(segment)
        self.tops.append(top)
        return len(self.tops) - 1

    def _grow_beside(self, index: int) -> None:
        """
        Ask for a sibling of a sampled segment in the next round, whose first token differs if another is possible,
        unless that token ends the completion.
        """
        segment, top = self.grown.segments[index], self.tops[index]
        forced = alternative(top, segment.token_ids[0], self.shape.top_k, self.rules.greedy, self.generator)
        branch = Branch(segment.parent, forced)
        if forced is not None and self.rules.is_over(self._path(branch)):
            self._add(branch, Continuation([], [], top=top[:0]))
        else:
            self.waiting.append(branch)

    def _split(self, fresh: list[int]) -> None:
        """Split segments at their gates, in the order of the tokens before the gate, while there is room."""
        gates = [gate for index in fresh if (gate := self._gate(index))]
        heapq.heapify(gates)
        while gates and self._has_room():
            _, index, length = heapq.heappop(gates)
            if gate := self._gate(self._split_at(index, length)):
                heapq.heappush(gates, gate)

    def _gate(self, index: int) -> tuple[int, int, int] | None:
        """First gate of a segment as (tokens of the completion before it, segment, length of the segment there)."""
        token_ids = self.grown.segments[index].token_ids
        if len(self.grown.path(index)) >= self.shape.max_depth:
            return None
        lengths = self.shape.gates(token_ids, self.tops[index], self.rules)
        before = len(self.grown.completion_ids(index)) - len(token_ids)
        return (before + lengths[0], index, lengths[0]) if lengths else None

    def _split_at(self, index: int, length: int) -> int:
        """Cut a segment; what was sampled after the cut becomes its first child, which is returned."""
        segment, top = self.grown.segments[index], self.tops[index]
        after = Continuation(segment.token_ids[length:], segment.logprobs and segment.logprobs[length:])
        after.top = top[length:]
        segment.token_ids = segment.token_ids[:length]
        segment.logprobs = segment.logprobs and segment.logprobs[:length]
        self.tops[index] = top[:length]
        child = self._add(Branch(index), after)
        self._grow_beside(child)
        return child

    def _cover(self) -> None:
        """Give long leaf segments an extra sibling each, the longest first, while there is room."""
        self.covered = True
        if self.shape.coverage_tokens is None:
            return
        length = {leaf: len(self.grown.segments[leaf].token_ids) for leaf in self.grown.leaves()}
        for leaf in sorted(length, key=length.get, reverse=True):
            if length[leaf] > self.shape.coverage_tokens and self._has_room():
                self.waiting.append(Branch(self.grown.segments[leaf].parent))
