"""Configurations of the models that the packaged recipes train, for machines that cannot reach the Hub."""

from transformers import AutoConfig, LlamaConfig, PretrainedConfig, Qwen3Config

_QWEN3 = {
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}
_SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def _qwen3(hidden: int, inner: int, layers: int, heads: int) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, **_QWEN3
    )


KNOWN = {
    "Qwen/Qwen3-0.6B": lambda: _qwen3(1024, 3072, 28, 16),
    "Qwen/Qwen3-1.7B": lambda: _qwen3(2048, 6144, 28, 16),
    "Qwen/Qwen3-4B": lambda: _qwen3(2560, 9728, 36, 32),
    "HuggingFaceTB/SmolLM2-135M-Instruct": lambda: LlamaConfig(**_SMOLLM2),
}


def model_config(name: str, **keywords) -> tuple[PretrainedConfig, bool]:
    """
    The configuration of a model, and whether it was read from its folder or the Hub.

    Raises:
        OSError: it could not be read, and `KNOWN` has no such model.
    """
    try:
        return AutoConfig.from_pretrained(name, **keywords), True
    except OSError:
        if name not in KNOWN:
            raise
        return KNOWN[name](), False
