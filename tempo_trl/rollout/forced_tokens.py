"""First tokens of branches that had to differ from a sibling's, and so were not drawn from the policy."""

import torch

from tempo_trl.rollout.tree import Branches

FORCED_TOKENS = ("keep", "reweight", "mask")


def treat_forced_tokens(output: dict, grown: Branches, forced_tokens: str) -> None:
    """Reweight the advantages of forced tokens of a scored batch, or take them out of its loss, or keep them."""
    ratio = grown.forced_ratio.to(output["completion_mask"].device)
    if forced_tokens == "reweight":
        output["advantages"] = output["advantages"] * ratio
    if forced_tokens == "mask":
        mask = output["completion_mask"]
        output["tool_mask"] = output.get("tool_mask", torch.ones_like(mask)) * (ratio == 1).to(mask.dtype)
