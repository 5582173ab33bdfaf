"""The config field `tree_forward` of trainers that can compute on the tree."""

from dataclasses import dataclass

from tempo_trl.config_help import with_help

TREE_FORWARD = ("off", "auto", "on")


@with_help
@dataclass
class TreeForwardFields:
    """
    Field of trainers that can compute log-probabilities on the prefix tree of a micro-batch
    ([`~tempo_trl.tree_forward.TreePass`]). List this class before [`~trl.GRPOConfig`] among the bases.

    Args:
        tree_forward (`str`, *optional*, defaults to `"off"`):
            Whether policy, old and reference log-probabilities are computed once for tokens that completions share.
            `"off"` computes every completion separately, as TRL does. `"auto"` tests the tree on the first batch, and
            falls back to `"off"` with a warning if it is wrong or does not pay. `"on"` raises an error if the tree is
            not supported.
    """

    tree_forward: str = "off"

    def __post_init__(self):
        self.check_tree_forward()
        super().__post_init__()

    def check_tree_forward(self) -> None:
        """Validate `tree_forward`."""
        # YAML reads a bare `off` and `on` as booleans.
        self.tree_forward = {False: "off", True: "on"}.get(self.tree_forward, self.tree_forward)
        if self.tree_forward not in TREE_FORWARD:
            raise ValueError(f"`tree_forward` must be one of {TREE_FORWARD}, got {self.tree_forward!r}.")
