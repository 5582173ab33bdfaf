"""GRPO-lambda: eligibility traces inside GRPO's importance ratio, or as weights of its tokens."""

from dataclasses import dataclass

import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.batch import Batch
from tempo_trl.credit.checks import check_choice, check_number, refuse
from tempo_trl.credit.traces import STYLES, trace_weights, traced_reference
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.report import log_sums
from tempo_trl.trainers.scored_rows import loss_mask
from tempo_trl.trainers.token_credit import TokenCreditTrainer

UPDATES = ("trace", "weight")


def grpo_lambda_credit(
    batch: Batch,
    advantage_floor: float | None = -0.1,
    trace_update: str = "trace",
    trace_decay: float = 0.99,
    trace_style: str = "recent",
) -> torch.Tensor:
    """
    GRPO-lambda's credit: GRPO's advantages with a lower bound, multiplied by the trace's weights for epsilon-weight.

    Epsilon-trace changes the importance ratio instead of the advantages: [`GRPOLambdaTrainer`] does that in the loss.

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups.
        advantage_floor, trace_update, trace_style:
            As in [`GRPOLambdaConfig`].
        trace_decay (`float`, *optional*, defaults to `0.99`):
            Gamma times lambda; 0 is GRPO.

    Returns:
        `torch.Tensor` of shape `(R, T)`, or `(R,)` for GRPO.
    """
    if trace_decay == 0:
        return batch.advantages
    advantages = batch.outcome.nan_to_num(0.0)
    if advantage_floor is not None:
        advantages = advantages.clamp(min=advantage_floor)
    if trace_update == "weight":
        return advantages[:, None] * trace_weights(batch.loss_mask.float(), trace_decay, trace_style)
    return advantages[:, None].expand(batch.completion_ids.shape)


@with_help
@dataclass
class GRPOLambdaConfig(TokenCreditConfig):
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
            Where the trace is applied: to the log-ratios (`"trace"`, epsilon-trace) or as a weight of each token's
            loss (`"weight"`, epsilon-weight).
        advantage_floor (`float`, *optional*, defaults to `-0.1`):
            Lower bound of the advantages, at most 0 (section 4.2, appendix B); `None` for no bound.
        beta (`float`, *optional*, defaults to `0.04`):
            Coefficient of the KL divergence from the reference model (table 2); TRL's default is 0.
        use_bias_correction_kl (`bool`, *optional*, defaults to `False`):
            Whether to multiply the KL term by the importance ratio. The paper does not; TRL's default is `True`. Not
            supported with epsilon-trace, which replaces that ratio.
    """

    trace_lambda: float = 0.99
    trace_gamma: float = 1.0
    trace_style: str = "recent"
    trace_update: str = "trace"
    advantage_floor: float | None = -0.1
    beta: float = 0.04
    use_bias_correction_kl: bool = False

    @property
    def trace_decay(self) -> float:
        """Gamma times lambda; 0 is GRPO."""
        return self.trace_gamma * self.trace_lambda

    def check(self) -> None:
        """Validate the trace settings and reject incompatible TRL options."""
        super().check()
        check_number("trace_lambda", self.trace_lambda, 1)
        check_number("trace_gamma", self.trace_gamma, 1)
        check_choice("trace_style", self.trace_style, STYLES)
        check_choice("trace_update", self.trace_update, UPDATES)
        if self.trace_decay == 0:
            return
        trace = self.trace_update == "trace"
        sequences = trace and self.importance_sampling_level != "token"
        no_gradient = trace and self.loss_type in ("cispo", "vespo")
        corrected = trace and self.beta != 0.0 and self.use_bias_correction_kl
        averaged = (
            "one ratio per sequence would average out the traces of its tokens. Use 'token', or trace_update='weight'"
        )
        without = "it has no gradient through the importance ratio, which epsilon-trace changes"
        replaced = "it multiplies the KL term by the importance ratio, which epsilon-trace replaces"
        refused = {
            "importance_sampling_level": (sequences, averaged),
            "loss_type": (no_gradient, f"{without}. Use 'dapo' or 'grpo', or trace_update='weight'"),
            "use_bias_correction_kl": (corrected, f"{replaced}. Unset it, or use trace_update='weight' or beta=0"),
        }
        refuse(self, refused)


class GRPOLambdaTrainer(TokenCreditTrainer):
    """
    Trainer for GRPO-lambda (https://huggingface.co/papers/2510.00194). Two changes with respect to
    [`~trl.GRPOTrainer`]: negative advantages are clamped; and a token's log importance ratio becomes a decayed sum
    over the token and its predecessors (epsilon-trace), or its loss is multiplied by the sum of the decays
    (epsilon-weight). Generation, rewards, KL term, loss and logging are TRL's. With `trace_lambda=0` training is that
    of [`~trl.GRPOTrainer`], bit for bit.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`GRPOLambdaConfig`].

    Raises:
        ValueError: if `args` is not a [`GRPOLambdaConfig`], or has options that epsilon-trace does not support:
            sequence-level importance ratios, the losses "cispo" and "vespo", and the bias-corrected KL.

    Note:
        Where the paper is ambiguous or contradicts itself:

        - The objective is the main text's min(ratio * A, clip(ratio) * A), not algorithm 1's min(ratio, clip(ratio))
          * A, which differs for negative A.
        - Traces decay with the distance between two tokens (equations 1 and 2), not with the column alone and with a
          floor (equations 17 and 18). At lambda 0 there is no trace: equation 2, taken literally, would keep the
          first token's.
        - epsilon-weight multiplies by the sum of the decays (section 3.2), not by algorithm 2's
          1 + sigmoid(log pi - 1).
        - Tokens outside the loss (of tools, for example) add nothing to a trace, and are no steps of time.
        - Traced log-ratios are kept within +-80, beyond which exp would be infinite and its clipped gradient NaN.
        - The average over tokens is TRL's `loss_type`, "dapo" by default; the paper does not specify it.

        The KL term, the off-policy mask, vLLM's importance sampling correction and the ratios logged as `sampling/*`
        use the plain log-probabilities. `clip_ratio/*` counts what the objective clips: traced ratios. The mean
        absolute log-ratio before and after the trace is `grpo_lambda/log_ratio` and `grpo_lambda/traced_log_ratio`.
    """

    _tag_names = ["trl", "grpo-lambda"]
    _name = "GRPO_lambda"
    _paper = arxiv_paper(
        "2510.00194",
        "parthasarathi2025grpolambda",
        "GRPO-λ: Credit Assignment improves LLM Reasoning",
        "Prasanna Parthasarathi and Mathieu Reymond and Boxing Chen and Yufei Cui and Sarath Chandar",
    )

    _config_cls = GRPOLambdaConfig
    method_name = "grpo_lambda"
    _advantage_floor = None  # its credit function applies it, before the weights of the trace

    def credit(self, batch):
        args = self.args
        return grpo_lambda_credit(batch, args.advantage_floor, args.trace_update, args.trace_decay, args.trace_style)

    def _reference(self, inputs, logps):
        """With these old log-probabilities the ratios in TRL's loss are the traced ones."""
        if self.args.trace_update != "trace":
            return super()._reference(inputs, logps)
        mask, old = loss_mask(inputs), inputs.get("old_per_token_logps")
        old = logps.detach() if old is None else old
        reference = traced_reference(logps, old, mask, self.args.trace_decay, self.args.trace_style)
        self._log_ratios((logps - old).detach(), (logps - reference).detach(), mask)
        sampling = inputs.get("sampling_per_token_logps", old)  # else the off-policy mask reads the traced ones
        return {"old_per_token_logps": reference, "sampling_per_token_logps": sampling}

    def _log_ratios(self, plain: torch.Tensor, traced: torch.Tensor, mask: torch.Tensor) -> None:
        ratios, number = {"log_ratio": plain, "traced_log_ratio": traced}, mask.sum().item()
        sums = {name: ratio.abs().masked_fill(mask == 0, 0.0).sum().item() for name, ratio in ratios.items()}
        log_sums(self, "grpo_lambda", {name: (total, number) for name, total in sums.items()})
