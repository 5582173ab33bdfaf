"""A tiny Qwen3 built on the spot: no download, a few milliseconds a training step."""

from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and Qwen3's special tokens and chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *TAGS, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    backend.add_tokens(TAGS)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=files("trl").joinpath("chat_templates/qwen3.jinja").read_text(),
    )


def tiny_model_config(vocab_size: int, **overrides) -> Qwen3Config:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 4096, "tie_word_embeddings": False}
    return Qwen3Config(vocab_size=vocab_size, **(shape | overrides))


def save_tiny_model(folder: Path) -> None:
    """
    Save model and tokenizer.

    A random model seldom repeats a token and never ends: the tests sample with `top_k=3` for shared prefixes, and a
    fifth of the byte tokens count as end of sequence for ragged lengths.
    """
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(tiny_model_config(len(tokenizer)))
    ends = [tokenizer.eos_token_id, *range(20, len(tokenizer), 5)]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
