"""The starting policy of the demo: a Qwen3 of 0.8 million parameters whose tokens are single characters.

It has learned the task of `tempo_trl.demo.task` from solutions with errors ("slips"), and makes such errors itself.
The shipped folder is an ordinary model folder. `python -m benchmarks.learning.warm_start` recreates it, in a clone of
the repository.
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
_TOKENS = (*CHARACTERS, PAD, EOS)


def policy_path() -> Path:
    """The shipped model folder, for `from_pretrained`, TRL's `model` or a server."""
    return Path(__file__).with_name("start")


def load_policy(folder: Path | None = None) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The policy in `folder` (default: the shipped one) in float32, and its tokenizer."""
    folder = folder or policy_path()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def write_policy(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save model and tokenizer to `folder`, the weights in float16."""
    # Only the file is in half precision, to keep it small: with float32 in its configuration it loads as float32.
    model.save_pretrained(folder, state_dict={name: weight.half() for name, weight in model.state_dict().items()})
    tokenizer.save_pretrained(folder)


def character_tokenizer(max_length: int = 128) -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each of `CHARACTERS`, so text and tokens have the same indices.

    Other characters raise an error, because the vocabulary has no unknown token. Pads on the left, with a pad token
    that is not EOS. `max_length` is the maximum number of tokens of its model.
    """
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(_TOKENS)}))
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
    """A Qwen3 with grouped-query attention and heads of size 32: by default four layers, 0.8 million parameters.

    `width` must be a multiple of 64.
    """
    return Qwen3Config(
        vocab_size=len(_TOKENS),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 64,
        head_dim=32,
        max_position_embeddings=max_length,
        # vLLM's weight transfer does not update a tied head.
        tie_word_embeddings=False,
        pad_token_id=_TOKENS.index(PAD),
        eos_token_id=_TOKENS.index(EOS),
    )
