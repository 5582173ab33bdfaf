"""The configuration of `TEMPOTrainer`: TRL's `GRPOConfig` and what TEMPO adds."""

import math
from dataclasses import dataclass, field

from trl import GRPOConfig


@dataclass
class TEMPOConfig(GRPOConfig):
    r"""
    Configuration class for the [`TEMPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    except for the two below. beta 0 and the token-mean (DAPO) loss of the paper are TRL's own defaults.

    Args:
        td_coef (`float`, *optional*, defaults to `1.0`):
            Coefficient of the branch-gated TD error in the advantage of a token. The paper
            (https://huggingface.co/papers/2509.18314, section 4.2) has 1. 0 leaves the advantages of
            [`~trl.GRPOTrainer`] untouched.
        epsilon_high (`float`, *optional*, defaults to `0.28`):
            Upper clipping bound of the importance ratio. "Policy clipping parameter: 0.28, 0.2" (table 2); TRL's
            default is the value of `epsilon`, 0.2.
    """

    td_coef: float = field(
        default=1.0,
        metadata={
            "help": "Coefficient of the branch-gated TD error in the advantage of a token. The TEMPO paper has 1; "
            "0 leaves the advantages of GRPO untouched."
        },
    )
    epsilon_high: float | None = field(
        default=0.28,
        metadata={
            "help": "Upper-bound epsilon value for clipping. The TEMPO paper uses 0.28 above and 0.2 (`epsilon`) "
            "below. If None, it is the value of `epsilon`, as in GRPOConfig."
        },
    )

    def __post_init__(self):
        if self.num_generations == 0:  # TRL refuses 1, and divides by it first
            raise ValueError("`num_generations` must be at least 2, got 0: TEMPO compares the completions of a group.")
        super().__post_init__()
        if not 0.0 <= self.td_coef < math.inf:
            raise ValueError(
                f"`td_coef` must be a finite number of at least 0, got {self.td_coef!r}. 1 is the paper's, 0 is GRPO."
            )
