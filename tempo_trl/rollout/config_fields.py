"""Config fields for completions that are grown as trees."""

import math
from dataclasses import dataclass

from tempo_trl.config_help import with_help
from tempo_trl.credit.checks import check_choice
from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree

FORCED_TOKENS = ("keep", "reweight", "mask")


@with_help
@dataclass
class FixedTreeFields:
    """
    Fields of trees that split at fixed lengths (TreeRPO, https://huggingface.co/papers/2506.05183).

    Args:
        tree_children (`int`, *optional*, defaults to `2`):
            Number N of continuations per node. `num_generations` must be N to the power of the depth.
        tree_depth (`int`, *optional*, defaults to `3`):
            Depth D of the tree, in segments.
        tree_step_tokens (`int`, *optional*):
            Maximum length of a segment, in tokens. Defaults to `max_completion_length` / `tree_depth`, rounded up.
            With less, completions end at `tree_depth * tree_step_tokens` in training, and later in evaluation.
    """

    tree_children: int = 2
    tree_depth: int = 3
    tree_step_tokens: int | None = None

    def check_fixed_tree(self) -> None:
        """Validate the shape of the tree and that it has `num_generations` leaves."""
        leaves = self.fixed_tree().num_generations
        if self.num_generations != leaves:
            raise ValueError(
                f"`num_generations` must be tree_children ** tree_depth = {self.tree_children} ** {self.tree_depth} = "
                f"{leaves}, got {self.num_generations}: a tree of this shape yields that many completions. Change one "
                "of the three."
            )

    def fixed_tree(self) -> FixedTree:
        """The tree of these fields."""
        step_tokens = self.tree_step_tokens
        if step_tokens is None and self.max_completion_length is not None and self.tree_depth > 0:
            step_tokens = math.ceil(self.max_completion_length / self.tree_depth)
        return FixedTree(self.tree_children, self.tree_depth, step_tokens)


@with_help
@dataclass
class EntropyTreeFields:
    """
    Fields of trees that split where the policy is uncertain (hierarchical TreeRPO, section 3.2). Lengths in tokens.

    Args:
        tree_max_depth (`int`, *optional*, defaults to `7`):
            Depth at which segments no longer split (section 4.2.2).
        tree_min_segment_tokens (`int`, *optional*, defaults to `150`):
            Minimum length of a segment that splits, L_min (section 4.2.2).
        tree_entropy_threshold (`float`, *optional*, defaults to `1.0`):
            Entropy of the next token above which a segment splits, H_th, in nats, over the renormalized 20 most likely
            tokens of the sampling distribution (section 4.2.2).
        tree_delimiters (`list[str]`, *optional*):
            Texts with which a segment must end to split, of one token or more. Defaults to period, newline and similar
            punctuation.
        tree_coverage_tokens (`int`, *optional*, defaults to `300`):
            Length of a last segment above which a sibling is grown beside it; None for never. The paper has such a cap
            above L_min, but does not give its value.
        forced_tokens (`str`, *optional*, defaults to `"keep"`):
            Treatment of forced tokens: first tokens of branches that had to differ from their sibling's, and so were
            not sampled from the policy. `"keep"` trains them like any other token, as in the paper. `"reweight"`
            multiplies their advantage by the importance ratio of the policy to the distribution that they were drawn
            from: the probability of the 20 most likely tokens together, without the sibling's. `"mask"` removes them
            from the loss.
    """

    tree_max_depth: int = 7
    tree_min_segment_tokens: int = 150
    tree_entropy_threshold: float = 1.0
    tree_delimiters: list[str] | None = None
    tree_coverage_tokens: int | None = 300
    forced_tokens: str = "keep"

    def check_entropy_tree(self) -> None:
        """Validate the settings of the tree, and that it can have `num_generations` leaves."""
        tree, length = self.entropy_tree(), self.max_completion_length
        check_choice("forced_tokens", self.forced_tokens, FORCED_TOKENS)
        if length is not None and tree.most_leaves(length) < self.num_generations:
            raise ValueError(
                f"`num_generations` is {self.num_generations}, but a tree of completions of at most {length} tokens, "
                f"whose segments have at least {self.tree_min_segment_tokens}, has at most {tree.most_leaves(length)} "
                "leaves: the other completions would be copies. Lower `tree_min_segment_tokens` or `num_generations`, "
                "or raise `max_completion_length` or `tree_max_depth`."
            )

    def entropy_tree(self) -> EntropyTree:
        """The tree of these fields."""
        delimiters = {} if self.tree_delimiters is None else {"delimiters": self.tree_delimiters}
        return EntropyTree(
            num_generations=self.num_generations,
            max_depth=self.tree_max_depth,
            min_segment_tokens=self.tree_min_segment_tokens,
            entropy_threshold=self.tree_entropy_threshold,
            coverage_tokens=self.tree_coverage_tokens,
            **delimiters,
        )
