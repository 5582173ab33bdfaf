"""The tiny policy of the task `sums`: its model, and its tokenizer of single characters."""

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from tempo_trl.demo.task import policy_path

CHARACTERS = "0123456789+-=;#?"
PAD, EOS = "<pad>", "<eos>"
TOKENS = (*CHARACTERS, PAD, EOS)


def load_policy(folder: Path | None = None) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The policy in `folder` (default: the shipped one) in float32, and its tokenizer."""
    folder = folder or policy_path()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def character_tokenizer(max_length: int = 128) -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each of `CHARACTERS`, so text and tokens have the same indices.

    Other characters raise an error, because the vocabulary has no unknown token. Pads on the left, with a pad token
    that is not EOS. `max_length` is the maximum number of tokens of its model.
    """
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(TOKENS)}))
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
