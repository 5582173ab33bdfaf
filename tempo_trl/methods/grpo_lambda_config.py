"""The configuration of `GRPOLambdaTrainer`: TRL's `GRPOConfig` and what GRPO-lambda adds."""

from dataclasses import dataclass, field

from trl import GRPOConfig

from tempo_trl.credit.traces import STYLES
from tempo_trl.tree_forward.config import TreeForwardFields

UPDATES = ("trace", "weight")


@dataclass
class GRPOLambdaConfig(TreeForwardFields, GRPOConfig):
    r"""
    Configuration class for the [`GRPOLambdaTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, except for those below. Sections and tables are those of https://huggingface.co/papers/2510.00194.

    Args:
        trace_lambda (`float`, *optional*, defaults to `0.99`):
            Lambda of the trace, from 0 to 1; best in section 4.1. 0 (of this or of `trace_gamma`) is
            [`~trl.GRPOTrainer`]: no trace in either style, no clamp.
        trace_gamma (`float`, *optional*, defaults to `1.0`):
            Discount gamma of the trace, from 0 to 1. Section 3.2 takes 1. Only its product with lambda matters.
        trace_style (`str`, *optional*, defaults to `"recent"`):
            Decay of the trace, `"recent"` (equation 1) or `"both"` (equation 2).
        trace_update (`str`, *optional*, defaults to `"trace"`):
            What is traced: the log-ratios (`"trace"`, epsilon-trace) or the weight of each token's loss (`"weight"`,
            epsilon-weight).
        min_advantage (`float`, *optional*, defaults to `-0.1`):
            Lower bound of the advantages, at most 0 (section 4.2, appendix B); `None` for none.
        beta (`float`, *optional*, defaults to `0.04`):
            Coefficient of the KL divergence from the reference model (table 2); TRL's default is 0.
        use_bias_correction_kl (`bool`, *optional*, defaults to `False`):
            Whether to multiply the KL term with the importance ratio. The paper does not; TRL's default is `True`. Not
            with epsilon-trace, whose ratio is no longer that of the KL term.
    """

    trace_lambda: float = field(
        default=0.99, metadata={"help": "Lambda of the trace, from 0 to 1. 0 is GRPO, without trace and clamp."}
    )
    trace_gamma: float = field(
        default=1.0, metadata={"help": "Discount of the trace, from 0 to 1. Only its product with lambda matters."}
    )
    trace_style: str = field(
        default="recent",
        metadata={"help": "Decay of the trace: `recent`, or `both`, where first tokens count as much as the last."},
    )
    trace_update: str = field(
        default="trace",
        metadata={
            "help": "What is traced: log-ratios (`trace`, epsilon-trace) or the weight of each token's loss "
            "(`weight`, epsilon-weight)."
        },
    )
    min_advantage: float | None = field(
        default=-0.1, metadata={"help": "Lower bound of the advantages, at most 0; None for none."}
    )
    beta: float = field(
        default=0.04,
        metadata={"help": "KL coefficient. The GRPO-lambda paper uses 0.04. If 0, no reference model is loaded."},
    )
    use_bias_correction_kl: bool = field(
        default=False,
        metadata={"help": "Whether to multiply the KL term with the importance ratio; not with `trace_update` trace."},
    )

    def __post_init__(self):
        super().__post_init__()
        self.check()

    @property
    def trace_decay(self) -> float:
        """Gamma times lambda; 0 is GRPO."""
        return self.trace_gamma * self.trace_lambda

    def check(self) -> None:
        """Raise ValueError for a trace that is none, and for what of TRL it cannot go with."""
        for name in ("trace_lambda", "trace_gamma"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must lie between 0 and 1, got {getattr(self, name)!r}. 0 is GRPO.")
        for name, known in {"trace_style": STYLES, "trace_update": UPDATES}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {known}, got {getattr(self, name)!r}.")
        if self.min_advantage is not None and not self.min_advantage <= 0.0:
            raise ValueError(f"`min_advantage` must be at most 0, or None for no bound, got {self.min_advantage!r}.")
        if self.trace_decay > 0:
            self._refuse_what_has_no_token_ratio()

    def _refuse_what_has_no_token_ratio(self) -> None:
        if self.importance_sampling_level != "token":
            raise ValueError(
                f"`importance_sampling_level` must be 'token', got {self.importance_sampling_level!r}: one ratio a "
                "sequence would average the traces of its tokens away. Leave it at 'token', or set trace_lambda=0."
            )
        if self.trace_update == "trace" and self.loss_type in ("cispo", "vespo"):
            raise ValueError(
                f"`loss_type` {self.loss_type!r} has no gradient through the importance ratio, so epsilon-trace would "
                "bend its weights and trace nothing. Take 'dapo' or 'grpo', or trace_update='weight'."
            )
        if self.trace_update == "trace" and self.beta != 0.0 and self.use_bias_correction_kl:
            raise ValueError(
                "`use_bias_correction_kl` multiplies the KL term with the importance ratio, which epsilon-trace has "
                "replaced: the KL term must keep the plain one. Unset it, or take trace_update='weight' or beta=0."
            )
