"""Stand-ins for the models and the dataset that TRL's tests load from the Hub, in a folder under their Hub names.

transformers and datasets take a local folder before they ask the Hub: tests that run in this folder need no network.
"""

import json
from importlib.resources import files
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, GenerationConfig

from ..tiny import tiny_tokenizer

SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 4096,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
# Name on the Hub: type of the model, TRL's chat template, what its shape has beside SHAPE.
MODELS = {
    "tiny-Qwen2ForCausalLM-2.5": ("qwen2", "qwen2_5", {}),
    "tiny-Qwen2ForSequenceClassification-2.5": ("qwen2", "qwen2_5", {}),
    "tiny-Qwen3ForCausalLM": ("qwen3", "qwen3", {}),
    "tiny-Qwen3ForSequenceClassification": ("qwen3", "qwen3", {}),
    "tiny-Qwen3MoeForCausalLM": ("qwen3_moe", "qwen3", EXPERTS),
    "tiny-LlamaForCausalLM-3.2": ("llama", "llama3_2", {}),
    "tiny-LlamaForSequenceClassification-3.2": ("llama", "llama3_2", {}),
    "tiny-MistralForCausalLM-0.2": ("mistral", "qwen3", {}),
    "tiny-Gemma2ForCausalLM": ("gemma2", "gemma", {}),
    "tiny-Cohere2ForCausalLM": ("cohere2", "cohere2", {}),
    "tiny-Glm4MoeForCausalLM": ("glm4_moe", "glm4moe", {"n_routed_experts": 4, "num_experts_per_tok": 2}),
    "tiny-GptOssForCausalLM": ("gpt_oss", "gptoss", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}
SENTENCES = 19  # as many as TRL's dataset has, two of them for tests


def save_stand_ins(folder: Path) -> None:
    """Write every model and the dataset to `folder/trl-internal-testing`."""
    hub = folder / "trl-internal-testing"
    for name in MODELS:
        save_model(name, hub / name)
    save_dataset(hub / "zen")


def save_model(name: str, folder: Path) -> None:
    kind, template, overrides = MODELS[name]
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = files("trl").joinpath(f"chat_templates/{template}.jinja").read_text()
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **(SHAPE | special | overrides))
    classifier = "SequenceClassification" in name
    config.num_labels = 1 if classifier else 2
    torch.manual_seed(0)
    model = (AutoModelForSequenceClassification if classifier else AutoModelForCausalLM).from_config(config)
    model.generation_config = GenerationConfig(**special)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_dataset(folder: Path) -> None:
    """A dataset of prompts in two formats, each a configuration with both splits."""
    sentences = [f"Sentence {i} says that {i} is less than" for i in range(SENTENCES)]
    formats = {
        "standard_prompt_only": sentences,
        "conversational_prompt_only": [[{"role": "user", "content": sentence}] for sentence in sentences],
    }
    header = ["---", "configs:"]
    for name, prompts in formats.items():
        header += [f"- config_name: {name}", "  data_files:"]
        for split, rows in (("train", prompts[:-2]), ("test", prompts[-2:])):
            (folder / name).mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"prompt": prompt}) for prompt in rows]
            (folder / name / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
            header += [f"  - split: {split}", f"    path: {name}/{split}.jsonl"]
    (folder / "README.md").write_text("\n".join([*header, "---", ""]))
