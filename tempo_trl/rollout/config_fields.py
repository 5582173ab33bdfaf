"""Fields of configurations whose completions are grown as trees."""

from dataclasses import dataclass, field

from tempo_trl.rollout.forced_tokens import FORCED_TOKENS


@dataclass
class FixedTreeFields:
    """
    Fields of trees that split at fixed lengths (TreeRPO, https://huggingface.co/papers/2506.05183).

    Args:
        tree_children (`int`, *optional*, defaults to `2`):
            Continuations N of each node. `num_generations` must be N to the power of the depth.
        tree_depth (`int`, *optional*, defaults to `3`):
            Depth D of the tree, in segments.
        tree_step_tokens (`int`, *optional*):
            Longest segment, in tokens. `max_completion_length` over the depth, rounded up, if unset.
    """

    tree_children: int = field(
        default=2,
        metadata={"help": "Continuations of each node; num_generations must be tree_children ** tree_depth."},
    )
    tree_depth: int = field(default=3, metadata={"help": "Depth of the tree, in segments."})
    tree_step_tokens: int | None = field(
        default=None,
        metadata={"help": "Longest segment, in tokens. max_completion_length / tree_depth, rounded up, if unset."},
    )

    def check_fixed_tree(self) -> None:
        """Raise ValueError where no tree of these numbers ends in `num_generations` completions."""
        if self.tree_children < 2 or self.tree_depth < 1:
            raise ValueError(
                f"a tree needs at least 2 children and a depth of 1, got `tree_children`={self.tree_children} and "
                f"`tree_depth`={self.tree_depth}."
            )
        leaves = self.tree_children**self.tree_depth
        if self.num_generations != leaves:
            raise ValueError(
                f"`num_generations` must be tree_children ** tree_depth = {self.tree_children} ** {self.tree_depth} = "
                f"{leaves}, got {self.num_generations}: that many completions leave a tree. Set one of the three."
            )
        if self.tree_step_tokens is not None and self.tree_step_tokens < 1:
            raise ValueError(f"`tree_step_tokens` must be at least 1, got {self.tree_step_tokens}.")
        if self.max_completion_length is None and self.tree_step_tokens is None:
            raise ValueError("`tree_step_tokens` must be set where `max_completion_length` is not: one limits a tree.")


@dataclass
class EntropyTreeFields:
    """
    Fields of trees that split where the policy is in doubt (hierarchical TreeRPO, section 3.2). Lengths in tokens.

    Args:
        tree_max_depth (`int`, *optional*, defaults to `7`):
            Depth from which on nothing splits (section 4.2.2).
        tree_min_segment_tokens (`int`, *optional*, defaults to `150`):
            Shortest segment that splits, L_min (section 4.2.2).
        tree_entropy_threshold (`float`, *optional*, defaults to `1.0`):
            Entropy of the next token above which a segment splits, H_th, in nats over the renormalised 20 likeliest
            tokens of the distribution that is sampled from (section 4.2.2).
        tree_delimiters (`list[str]`, *optional*):
            What a segment must end with to split; period, newline and similar punctuation if unset.
        tree_coverage_tokens (`int`, *optional*, defaults to `300`):
            Length of a last segment above which a sibling is grown beside it; None for never. The text has such a cap
            above L_min and does not say which.
        forced_tokens (`str`, *optional*, defaults to `"keep"`):
            What becomes of the first token of a branch that had to differ from its sibling's, and so was not drawn
            from the policy. `"keep"` trains it like any other, as the text does; `"reweight"` multiplies its
            advantage by the importance ratio of the policy over how it was drawn, one minus the probability of the
            sibling's token; `"mask"` leaves it out of the loss.
    """

    tree_max_depth: int = field(default=7, metadata={"help": "Depth from which on nothing splits."})
    tree_min_segment_tokens: int = field(default=150, metadata={"help": "Shortest segment that splits, in tokens."})
    tree_entropy_threshold: float = field(
        default=1.0,
        metadata={"help": "Next-token entropy above which a segment splits, in nats over the 20 likeliest tokens."},
    )
    tree_delimiters: list[str] | None = field(
        default=None, metadata={"help": "What a segment must end with to split; punctuation and newline if unset."}
    )
    tree_coverage_tokens: int | None = field(
        default=300,
        metadata={"help": "Length of a last segment above which a sibling is grown beside it; None for never."},
    )
    forced_tokens: str = field(
        default="keep",
        metadata={
            "help": "First tokens of branches that had to differ from their sibling's: `keep` trains them as they "
            "are, `reweight` by their importance ratio, `mask` leaves them out of the loss."
        },
    )

    def check_entropy_tree(self) -> None:
        """Raise ValueError for numbers that grow no tree."""
        if self.tree_max_depth < 1 or self.tree_min_segment_tokens < 1:
            raise ValueError(
                f"`tree_max_depth` and `tree_min_segment_tokens` must be at least 1, got {self.tree_max_depth} and "
                f"{self.tree_min_segment_tokens}."
            )
        cap = self.tree_coverage_tokens
        if cap is not None and cap < self.tree_min_segment_tokens:
            raise ValueError(
                f"`tree_coverage_tokens` must be at least tree_min_segment_tokens = {self.tree_min_segment_tokens}, "
                f"got {cap}: shorter segments are left whole. Raise it, or set None for no coverage."
            )
        if self.forced_tokens not in FORCED_TOKENS:
            raise ValueError(f"`forced_tokens` must be one of {FORCED_TOKENS}, got {self.forced_tokens!r}.")
