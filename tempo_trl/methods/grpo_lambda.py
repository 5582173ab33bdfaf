"""GRPO-lambda on TRL: eligibility traces inside GRPO's importance ratio, or as weights of its tokens."""

import textwrap

import torch

from tempo_trl.credit.traces import trace_weights, traced_reference
from tempo_trl.methods.grpo_lambda_config import GRPOLambdaConfig
from tempo_trl.trainers.base_trainer import BaseTrainer
from tempo_trl.trainers.token_credit import loss_mask


class GRPOLambdaTrainer(BaseTrainer):
    """
    Trainer for GRPO-lambda (https://huggingface.co/papers/2510.00194). With respect to [`~trl.GRPOTrainer`] negative
    advantages are clamped, and a token's log importance ratio becomes a decayed sum over the token and those before
    it (epsilon-trace), or its loss is multiplied with the sum of the decays (epsilon-weight). Generation, rewards,
    KL term, loss and logging are TRL's. With `trace_lambda=0` training is [`~trl.GRPOTrainer`]'s, bit for bit.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`GRPOLambdaConfig`].

    Raises:
        ValueError: if `args` is not a [`GRPOLambdaConfig`], or holds what traces cannot go with: sequence-level
            importance ratios; with epsilon-trace, the losses "cispo" and "vespo" and the bias-corrected KL.

    Note:
        Where the paper leaves a choice, or says two things:

        - The objective is the main text's min(ratio * A, clip(ratio) * A), not algorithm 1's min(ratio, clip(ratio))
          * A, which is another one for negative A.
        - Traces decay with the distance between two tokens (equations 1 and 2), not with the column alone and with a
          floor (equations 17 and 18). At lambda 0 there is no trace: equation 2 taken literally would keep the first
          token's.
        - epsilon-weight multiplies with the sum of the decays (section 3.2), not algorithm 2's product with
          1 + sigmoid(log pi - 1).
        - Tool tokens and others outside the loss add nothing to a trace, and count as a step of time.
        - Traced log-ratios are kept within +-80, beyond which exp would be infinite and its clipped gradient NaN.
        - The average over tokens is TRL's `loss_type`, "dapo" by default; the paper names none.

        The KL term, the off-policy mask, vLLM's importance sampling correction and the ratios logged as `sampling/*`
        see the plain log-probabilities. `clip_ratio/*` counts what the objective clips: traced ratios. The mean
        absolute log-ratio before and after the trace is `grpo_lambda/log_ratio` and `grpo_lambda/traced_log_ratio`.
        The table of completions shows advantages before the clamp.
    """

    _tag_names = ["trl", "grpo-lambda"]
    _name = "GRPO_lambda"
    _paper = {
        "title": "GRPO-λ: Credit Assignment improves LLM Reasoning",
        "id": "2510.00194",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{parthasarathi2025grpolambda,
                title        = {{GRPO-$\\lambda$: Credit Assignment improves LLM Reasoning}},
                author       = {Prasanna Parthasarathi and Mathieu Reymond and Boxing Chen and Yufei Cui and
                                Sarath Chandar},
                year         = 2025,
                eprint       = {arXiv:2510.00194},
            }"""),
    }

    _config_cls = GRPOLambdaConfig
    _traced_inputs = None  # the micro-batch at hand, while its epsilon-trace loss is computed

    def _compute_loss(self, model, inputs):
        args = self.args
        if args.trace_decay == 0:
            return super()._compute_loss(model, inputs)
        inputs = dict(inputs)  # a copy: TRL reuses the buffered micro-batch over num_iterations
        if args.min_advantage is not None:
            inputs["advantages"] = inputs["advantages"].clamp(min=args.min_advantage)
        if args.trace_update == "weight":
            weights = trace_weights(loss_mask(inputs), args.trace_decay, args.trace_style)
            inputs["advantages"] = inputs["advantages"].view(len(weights), -1) * weights
            return super()._compute_loss(model, inputs)
        self._traced_inputs = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._traced_inputs = None

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._traced_inputs is not None:
            self._trace(self._traced_inputs, logps)
        return logps, entropies, aux_loss

    def _trace(self, inputs: dict, logps: torch.Tensor) -> None:
        """Put the old log-probabilities in place that make the ratios of TRL's loss the traced ones."""
        mask, old = loss_mask(inputs), inputs.get("old_per_token_logps")
        old = logps.detach() if old is None else old
        reference = traced_reference(logps, old, mask, self.args.trace_decay, self.args.trace_style)
        inputs["old_per_token_logps"] = reference
        inputs.setdefault("sampling_per_token_logps", old)  # of the off-policy mask, which falls back on the former
        self._log_ratios((logps - old).detach(), (logps - reference).detach(), mask)

    def _log_ratios(self, plain: torch.Tensor, traced: torch.Tensor, mask: torch.Tensor) -> None:
        sums = [(ratio.abs().masked_fill(mask == 0, 0.0)).sum() for ratio in (plain, traced)]
        totals = self.accelerator.reduce(torch.stack([*sums, mask.sum()]).float(), reduction="sum").tolist()
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, total in zip(("log_ratio", "traced_log_ratio"), totals[:2], strict=True):
            metrics[f"grpo_lambda/{name}"].append(total / max(totals[2], 1.0))
