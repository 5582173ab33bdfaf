"""Sizes of a model, read from a copy on the meta device: shapes without weights."""

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PretrainedConfig, PreTrainedModel


class ModelShape(NamedTuple):
    """Sizes of a causal language model, or of a critic; tied parameters count once.

    Args:
        total (`int`):
            Parameters, without adapters.
        trained (`int`):
            Trained parameters: all, or those of the adapters.
        ends (`int`):
            Parameters of the embedding and of the output head; the others are those of the layers.
        head (`int`):
            Parameters of the output head, tied or not; 0 for a critic, which has no logits.
        layers, hidden, queries, keys, inner (`int`):
            Number of decoder layers; widths of the residual stream, of all query heads together, of all key heads
            together, and of the feed-forward layer (for a mixture of experts, of the experts that one token uses).
        normed_heads (`bool`):
            Whether queries and keys are normalised (Qwen3's are).
    """

    total: int
    trained: int
    ends: int
    head: int
    layers: int
    hidden: int
    queries: int
    keys: int
    inner: int
    normed_heads: bool


def model_shape(
    config: "PretrainedConfig", adapters: "PeftConfig | None" = None, trust_remote_code: bool = False
) -> ModelShape:
    """Sizes of the model that `config` describes, built without memory; `adapters` is a PEFT configuration."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
        total, ends = model.num_parameters(), (model.get_input_embeddings(), model.get_output_embeddings())
        embedding, head = (module.weight for module in ends)
        normed_heads = any(name.endswith("q_norm") for name, _ in model.named_modules())
        trained = total if adapters is None else _adapter_parameters(model, adapters)
    return ModelShape(
        total=total,
        trained=trained,
        ends=embedding.numel() + (0 if head is embedding else head.numel()),
        head=head.numel(),
        normed_heads=normed_heads,
        **_widths(config.get_text_config()),
    )


def _adapter_parameters(model: "PreTrainedModel", adapters: "PeftConfig") -> int:
    from peft import get_peft_model

    return get_peft_model(model, adapters).get_nb_trainable_parameters()[0]


def _widths(config: "PretrainedConfig") -> dict[str, int]:
    heads, hidden = config.num_attention_heads, config.hidden_size
    head = getattr(config, "head_dim", None) or hidden // heads
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    if getattr(config, "moe_intermediate_size", None):
        inner = config.moe_intermediate_size * config.num_experts_per_tok
    return {
        "layers": config.num_hidden_layers,
        "hidden": hidden,
        "queries": heads * head,
        "keys": (getattr(config, "num_key_value_heads", None) or heads) * head,
        "inner": inner,
    }
