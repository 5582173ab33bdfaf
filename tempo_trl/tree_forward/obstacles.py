"""Features of a model or a configuration that the tree does not support, found before anything runs."""

from collections.abc import Iterator
from itertools import chain

import torch
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel
from trl import GRPOTrainer

from tempo_trl.adapters import WHAT_THEY_DO, adapts_rows
from tempo_trl.tree_forward.tree_attention import IMPLEMENTATION

ATTENDING = {"full_attention", "sliding_attention"}
# Other types depend on the length of the batch, including padding, so a token's result would depend on the packing.
ROPE_TYPES = {"default", "linear", "llama3", "yarn"}


def first_obstacle(trainer: GRPOTrainer) -> str | None:
    """The first reason why the trainer cannot compute on the tree, or None."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return next(chain(_of_options(trainer), _of_model(base), _of_adapters(model)), None)


def _of_options(trainer: GRPOTrainer) -> Iterator[str]:
    if trainer.aux_loss_enabled:
        yield "the router's auxiliary loss is a mean over all tokens of a batch (set router_aux_loss_coef=0)"
    if trainer.args.torch_compile or trainer.accelerator.state.dynamo_plugin.backend != DynamoBackend.NO:
        yield "torch.compile would recompile for each length of the stream (unset torch_compile and dynamo_backend)"
    if trainer.args.neftune_noise_alpha is not None:
        yield "NEFTune draws noise (unset neftune_noise_alpha)"
    if getattr(trainer.accelerator, "parallelism_config", None) is not None:
        yield "context, sequence and tensor parallelism split rows (unset accelerate's parallelism_config)"


def _of_model(model: PreTrainedModel) -> Iterator[str]:
    config = model.config
    text = config.get_text_config()
    if getattr(config, "vision_config", None) is not None:
        yield "the model takes images"
    if text._attn_implementation != IMPLEMENTATION:
        yield f"the attention implementation is {text._attn_implementation!r}, expected {IMPLEMENTATION!r}"
    other = set(getattr(text, "layer_types", None) or ()) - ATTENDING
    if other:
        yield f"the model has layers without plain attention: {', '.join(sorted(other))}"
    if getattr(text, "attn_logit_softcapping", None) is not None:
        yield "the model soft-caps its attention scores"
    yield from _of_positions(text)
    yield from _of_dropout(model, text)
    yield from _of_noise(text)


def _of_positions(text) -> Iterator[str]:
    rope = getattr(text, "rope_parameters", None)
    if not rope:
        yield "the model does not use rotary position embeddings"
        return
    types = {kind.get("rope_type", "default") for kind in (rope, *rope.values()) if isinstance(kind, dict)}
    if not types <= ROPE_TYPES:
        yield f"its rotary positions depend on the length of the batch: {', '.join(sorted(types - ROPE_TYPES))}"


def _of_dropout(model: PreTrainedModel, text) -> Iterator[str]:
    on = "dropout is on, and completions that share a token would share its noise"
    if any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules()):
        yield f"{on} (set disable_dropout=True)"
    if getattr(text, "attention_dropout", 0):
        yield f"{on} (set attention_dropout=0 in the model's configuration)"


def _of_noise(text) -> Iterator[str]:
    """Noise of routers in training, which completions that share a token would share."""
    for name in (name for name, size in vars(text).items() if name.endswith("jitter_noise") and size):
        yield f"routers draw noise (set {name}=0 in the model's configuration)"


def _of_adapters(model) -> Iterator[str]:
    if adapts_rows(model):
        yield f"the adapter {WHAT_THEY_DO}"
