"""Tiny models of each architecture, and a GRPO trainer that computes on the tree."""

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM

from tempo_trl import PlainGRPOConfig, PlainGRPOTrainer

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
WINDOW = 7  # shorter than the prompts of the tests, and than most of the completions
ARCHITECTURES = {
    "qwen2": {},
    "qwen3": {},
    "llama": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "mistral": {"sliding_window": WINDOW},
    "gemma3_text": {
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 8,
    },
}


def model_of(architecture: str, **overrides):
    torch.manual_seed(0)
    options = SHAPE | {"vocab_size": len(tiny_tokenizer())} | ARCHITECTURES.get(architecture, {}) | overrides
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **options))
    with torch.no_grad():  # random weights of the usual size give every token nearly the same probability
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.ndim > 1 else 1)
    return model


def trainer_of(model, folder, peft_config=None, **options):
    if hasattr(model.config, "router_aux_loss_coef"):
        options = {"router_aux_loss_coef": 0.0} | options
    args = config(folder, PlainGRPOConfig, **({"tree_forward": "on"} | options))
    prompts = Dataset.from_dict({"prompt": ["1+1?", "2+2?"]})
    return PlainGRPOTrainer(model, parity, args, prompts, processing_class=tiny_tokenizer(), peft_config=peft_config)
