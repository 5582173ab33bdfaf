"""Tiny models of each architecture, and a trainer that computes log-probabilities with one of them."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.trainers.tree_forward import TreeForward
from tempo_trl.trainers.tree_forward_config import TreeForwardFields

from ..tiny import tiny_tokenizer
from ..trainers.recording import config, parity

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
ARCHITECTURES = {
    "qwen2": {},
    "qwen3": {},
    "llama": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "mistral": {"sliding_window": 7},  # shorter than the prompts of the tests, and than most completions
    "gemma3_text": {"sliding_window": 7, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"]},
}


@dataclass
class TreeGRPOConfig(TreeForwardFields, GRPOConfig):
    """As a user would write it: the mixins stand before TRL's classes."""


class TreeGRPOTrainer(TreeForward, GRPOTrainer):
    """As a user would write it."""


def model_of(architecture: str, **overrides):
    torch.manual_seed(0)
    options = SHAPE | ARCHITECTURES.get(architecture, {}) | {"vocab_size": len(tiny_tokenizer())} | overrides
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **options))
    with torch.no_grad():  # random weights of the usual size give every token the same probability
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.ndim > 1 else 1)
    return model


def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


def trainer_of(model, folder, cls=TreeGRPOTrainer, config_cls=TreeGRPOConfig, peft_config=None, **options):
    args = config(folder, config_cls, **({"tree_forward": "on"} | options))
    prompts = Dataset.from_dict({"prompt": ["1+1?", "2+2?"]})
    return cls(model, parity, args, prompts, processing_class=tiny_tokenizer(), peft_config=peft_config)
