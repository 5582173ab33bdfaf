"""Leave completions without any advantage out of the forward and backward pass: they have no gradient."""

from collections.abc import Callable

import torch
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.adapters import mixes_rows
from tempo_trl.credit.checks import refuse
from tempo_trl.trainers.scored_rows import loss_mask


def of_rows_with_credit(forward: Callable, inputs: dict, model, input_ids, attention_mask, *args, **kwargs) -> tuple:
    """TRL's forward pass over a micro-batch, `forward(model, ...)`, for the rows of it that have credit."""
    kept = rows_with_credit(inputs["advantages"], loss_mask(inputs))
    result = forward(model, input_ids[kept], attention_mask[kept], *args, **kwargs)
    return on_all_rows(kept, *result, inputs)


def rows_with_credit(advantages: torch.Tensor, in_loss: torch.Tensor) -> torch.Tensor:
    """
    Rows of a micro-batch with an advantage other than 0 on a token of the loss, `(B,)`, bool.

    If there is none, the row with most tokens in the loss is kept, because a forward pass is a collective under
    DeepSpeed ZeRO-3 and FSDP.

    Args:
        advantages (`torch.Tensor` of shape `(B,)` or `(B, T)`): Of completions, or of tokens.
        in_loss (`torch.Tensor` of shape `(B, T)`): Not 0 on the tokens of the loss.
    """
    kept = (advantages.reshape(len(advantages), -1).bool() & in_loss.bool()).any(dim=1)
    kept[in_loss.sum(dim=1).argmax()] |= not kept.any()
    return kept


def on_all_rows(
    kept: torch.Tensor, logps: torch.Tensor, entropies: torch.Tensor, aux_loss: torch.Tensor | None, inputs: dict
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """
    The results of a forward pass over the rows of a micro-batch that are `kept`, in the form of a pass over all rows.

    The other rows get constants: the old log-probabilities, so that their ratio is 1, and the mean entropy of the
    `kept` rows, so that TRL logs this mean.
    """
    rows = kept.nonzero().flatten()
    old = inputs.get("old_per_token_logps", logps.new_zeros(len(kept), logps.shape[1]))
    mask = loss_mask(inputs)[rows]
    mean = (entropies.detach() * mask).sum() / mask.sum().clamp(min=1)
    entropies = mean.repeat(old.shape).index_copy(0, rows, entropies)
    return old.to(logps.dtype).index_copy(0, rows, logps), entropies, aux_loss


def refuse_gradients_without_advantage(args: GRPOConfig) -> None:
    """Raise ValueError for settings with which completions without an advantage have a gradient, or change others'."""
    unset = "{}, also those of completions without an advantage. Leave it unset, or set skip_zero_advantages=False"
    bonus = unset.format("the entropy bonus trains all tokens")
    refused = {
        "beta": (args.beta != 0, unset.format("the KL penalty trains all tokens")),
        "entropy_coef": (args.entropy_coef != 0, bonus),
        "use_adaptive_entropy": (args.use_adaptive_entropy, bonus),
        "top_entropy_quantile": (args.top_entropy_quantile != 1, unset.format("its threshold is that of all tokens")),
    }
    refuse(args, refused)


def refuse_models_that_see_all_rows(trainer: GRPOTrainer) -> None:
    """Raise ValueError if the model's loss or its inputs do not belong to single rows."""
    reason = None
    if trainer.aux_loss_enabled:
        reason = "the router's auxiliary loss trains every token. Set router_aux_loss_coef=0"
    if mixes_rows(trainer.accelerator.unwrap_model(trainer.model)):
        reason = "the adapter lets rows depend on each other, or on chance. Use another adapter, such as LoRA"
    if trainer._is_vlm:
        reason = "the images of a micro-batch are not stored by row. Use a model without images"
    if reason is not None:
        raise ValueError(
            f"`skip_zero_advantages=True` is not supported for this model: {reason}, or set "
            "skip_zero_advantages=False."
        )
