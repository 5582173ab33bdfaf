"""The demonstration's starting policy: a Qwen3 of 0.8 million parameters that reads and writes one character a token.

It has learned the task of `tempo_trl.demo.task` from solutions that slip, and slips as they do. The shipped folder is
a model folder like any other; `python -m tempo_trl.demo.warm_start` makes it anew.
"""

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHARACTERS = "0123456789+-=;#?"
PAD, EOS = "<pad>", "<eos>"
_VOCABULARY = {token: index for index, token in enumerate([*CHARACTERS, PAD, EOS])}


def policy_path() -> Path:
    """The shipped model folder, for `from_pretrained`, TRL's `model` argument or a server's command line."""
    return Path(__file__).with_name("start")


def load_policy(folder: Path | None = None) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The policy in `folder`, by default the shipped one, in float32, and its tokenizer."""
    folder = folder or policy_path()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def character_tokenizer(max_length: int = 128) -> PreTrainedTokenizerFast:
    """One token for each of `CHARACTERS`, and none added: text and tokens have the same indices.

    A character outside of them is an error, as the vocabulary has no unknown token. Pads on the left, with a pad
    token that is not EOS. `max_length` is the most tokens that its model takes.
    """
    tokenizer = Tokenizer(WordLevel(_VOCABULARY))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )


def tiny_policy_config(width: int = 128, layers: int = 4, max_length: int = 128) -> Qwen3Config:
    """Qwen3 layers with grouped-query attention, in heads of 32: by default four of width 128, 0.8 million parameters.

    `width` is a multiple of 64.
    """
    return Qwen3Config(
        vocab_size=len(_VOCABULARY),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 64,
        head_dim=32,
        max_position_embeddings=max_length,
        # vLLM's weight transfer leaves a tied head stale.
        tie_word_embeddings=False,
        pad_token_id=_VOCABULARY[PAD],
        eos_token_id=_VOCABULARY[EOS],
    )
