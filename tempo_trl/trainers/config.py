"""The configuration that all trainers share: TRL's `GRPOConfig`, recorded trees and compute on the tree."""

from dataclasses import dataclass, field

from trl import GRPOConfig

from tempo_trl.tree_forward.config import TreeForwardFields


@dataclass
class TokenCreditConfig(TreeForwardFields, GRPOConfig):
    """
    Configuration class for the [`TokenCreditTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, and these. The configuration of each method here adds to it.

    Args:
        log_trees_steps (`int`, *optional*, defaults to `10`):
            Optimizer steps between two records of `OUTPUT_DIR/tempo/trees_{step}.parquet`: the first batch that is
            sampled after as many is written down. Each evaluation is. 0 records nothing.
        log_trees_prompts (`int`, *optional*, defaults to `8`):
            Groups per record, at most.
        tree_forward (`str`, *optional*, defaults to `"off"`):
            Whether log-probabilities are computed once for tokens that completions share
            ([`~tempo_trl.tree_forward.config.TreeForwardFields`]).
    """

    log_trees_steps: int = field(
        default=10,
        metadata={"help": "Optimizer steps between two records of prefix trees (tempo/trees_*.parquet); 0: none."},
    )
    log_trees_prompts: int = field(default=8, metadata={"help": "Groups in a record of prefix trees, at most."})

    def __post_init__(self):
        if self.num_generations == 0:  # TRL refuses 1, and divides by it first
            raise ValueError("`num_generations` must be at least 2, got 0: credit compares completions of a group.")
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Raise ValueError for a setting that cannot be. The trainer calls it again: fields can be set later."""
        self.check_tree_forward()
        for name, least in (("log_trees_steps", 0), ("log_trees_prompts", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}, got {getattr(self, name)!r}.")
