"""Trees of a fixed shape: every node has the same number of children, and every step the same number of tokens."""

from dataclasses import dataclass

from tempo_trl.credit.checks import check_counts
from tempo_trl.credit.grown_tree import Segment
from tempo_trl.rollout.growth import Continuation, GrowingTree, Request, Rules


@dataclass
class FixedTree:
    """
    The N-ary tree of TreeRPO (https://huggingface.co/papers/2506.05183): every node is continued `children` times by
    at most `step_tokens` tokens, `depth` times over. A leaf ends at an end-of-sequence token, a stop string, the
    longest completion or the last step.

    A leaf that ends before the last step, at depth d, counts as the `children ** (depth - d)` leaves that it would
    have had: it is repeated in as many completions. The uniform mean over completions is then the paper's mean over
    children.

    Args:
        children (`int`):
            Continuations of a node, N, at least 2.
        depth (`int`):
            Steps from the prompt to a leaf, D, at least 1. A group has N ** D completions.
        step_tokens (`int`):
            Maximum length of a step, in tokens. Completions have at most `depth * step_tokens` tokens.

    Raises:
        ValueError: if a number is too small.
    """

    children: int
    depth: int
    step_tokens: int
    top_k = 0

    def __post_init__(self):
        check_counts(self, children=2, depth=1)
        if self.step_tokens is not None:  # as in a run without a maximum length, which is refused as such
            check_counts(self, step_tokens=1)

    @property
    def num_generations(self) -> int:
        """Completions of a group."""
        return self.children**self.depth

    def start(self, prompt_ids: list[int], rules: Rules) -> "GrowingFixedTree":
        """A tree that contains only the prompt."""
        return GrowingFixedTree(self, prompt_ids, rules)


class GrowingFixedTree(GrowingTree):
    """One tree of [`FixedTree`] while it grows, one level per round."""

    def __init__(self, shape: FixedTree, prompt_ids: list[int], rules: Rules):
        super().__init__(prompt_ids, rules)
        self.shape = shape
        self.level = 0  # depth of the open nodes
        self.open = {-1: []}  # node: token ids of the path to it

    def requests(self) -> list[Request]:
        step, longest = self.shape.step_tokens, self.rules.max_tokens
        return [
            Request(self.prompt_ids, path, self.shape.children, min(step, longest - len(path)))
            for path in self.open.values()
        ]

    def take(self, answers: list[list[Continuation]]) -> None:
        self.level += 1
        above, self.open = self.open, {}
        for (parent, path), continuations in zip(above.items(), answers, strict=True):
            for continuation in continuations:
                self._add(parent, path, continuation)

    def _add(self, parent: int, path: list[int], continuation: Continuation) -> None:
        self.grown.segments.append(Segment(parent, continuation.token_ids, continuation.logprobs))
        path = path + continuation.token_ids
        if not continuation.stopped and self.level < self.shape.depth and len(path) < self.rules.max_tokens:
            self.open[len(self.grown.segments) - 1] = path

    def rows(self) -> list[int]:
        missing = {leaf: self.shape.depth - len(self.grown.path(leaf)) for leaf in self.grown.leaves()}
        return [leaf for leaf, levels in missing.items() for _ in range(self.shape.children**levels)]
