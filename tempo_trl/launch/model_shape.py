"""Sizes of a causal language model, read off a copy of it that has shapes and no weights."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PretrainedConfig, PreTrainedModel


class ModelShape(NamedTuple):
    """Sizes of a causal language model; numbers of parameters count tied ones once.

    Args:
        total (`int`):
            Parameters, without adapters.
        trained (`int`):
            Parameters that train: all, or those of the adapters.
        linear (`int`):
            Parameters of linear layers without the output head: what autocast copies and quantisation packs.
        layer (`int`):
            Parameters of the largest decoder layer.
        ends (`int`):
            Parameters of the embedding and the output head.
        layers, hidden, queries, keys, inner, vocabulary (`int`):
            Decoder layers; widths of the residual stream, of all query heads, of all key heads, of the feed-forward
            layer (of the experts that one token takes); tokens in the vocabulary.
        normed_heads (`bool`):
            Whether queries and keys are normalised (Qwen3's are).
    """

    total: int
    trained: int
    linear: int
    layer: int
    ends: int
    layers: int
    hidden: int
    queries: int
    keys: int
    inner: int
    vocabulary: int
    normed_heads: bool


def model_shape(
    config: "PretrainedConfig", adapters: "PeftConfig | None" = None, trust_remote_code: bool = False
) -> ModelShape:
    """Sizes of the model that `config` describes, built without memory; `adapters` is a PEFT configuration."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
        counts = _counts(model)
        trained = counts["total"] if adapters is None else _adapter_parameters(model, adapters)
    return ModelShape(trained=trained, **counts, **_widths(config.get_text_config()))


def _counts(model: "PreTrainedModel") -> dict:
    ends = [module for module in (model.get_input_embeddings(), model.get_output_embeddings()) if module is not None]
    linear = [module for module in model.modules() if isinstance(module, nn.Linear) and module not in ends]
    layers = [layer for layers in model.modules() if isinstance(layers, nn.ModuleList) for layer in layers]
    return {
        "total": _parameters(model),
        "linear": _parameters(*linear),
        "layer": max((_parameters(layer) for layer in layers), default=0),
        "ends": _parameters(*ends),
        "normed_heads": any(name.endswith("q_norm") for name, _ in model.named_modules()),
    }


def _parameters(*modules: nn.Module) -> int:
    return sum(parameter.numel() for parameter in {p for module in modules for p in module.parameters()})


def _adapter_parameters(model: "PreTrainedModel", adapters: "PeftConfig") -> int:
    from peft import get_peft_model

    return sum(p.numel() for p in get_peft_model(model, adapters).parameters() if p.requires_grad)


def _widths(config: "PretrainedConfig") -> dict:
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
        "vocabulary": config.vocab_size,
    }
