"""The field of configurations whose trainers can compute on the tree."""

from dataclasses import dataclass, field

TREE_FORWARD = ("off", "auto", "on")


@dataclass
class TreeForwardFields:
    """
    Field of trainers that can compute log-probabilities on the prefix tree of a micro-batch
    ([`~tempo_trl.tree_forward.TreePass`]). It stands before [`~trl.GRPOConfig`] among the bases.

    Args:
        tree_forward (`str`, *optional*, defaults to `"off"`):
            Whether policy, old and reference log-probabilities are computed once for tokens that completions share.
            `"off"` is TRL's way. `"auto"` measures the first batch and says once if it leaves the tree, `"on"`
            refuses what cannot be computed on it.
    """

    tree_forward: str = field(
        default="off",
        metadata={
            "help": "Compute tokens that completions share once: `off`, `auto` (if the first batch shows that it is "
            "right and pays) or `on` (or be refused)."
        },
    )

    def __post_init__(self):
        self.check_tree_forward()
        super().__post_init__()

    def check_tree_forward(self) -> None:
        """Raise ValueError for another word."""
        # YAML reads a bare `off` and `on` as booleans.
        self.tree_forward = {False: "off", True: "on"}.get(self.tree_forward, self.tree_forward)
        if self.tree_forward not in TREE_FORWARD:
            raise ValueError(f"`tree_forward` must be one of {TREE_FORWARD}, got {self.tree_forward!r}.")
