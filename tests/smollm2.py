"""The demo's language model, whole or cut short, for what tiny models lack: its chat template and tied embeddings."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tempo_trl.demo.language_model import Source, language_model


def whole_model() -> Source:
    """The model; skips the test where it is neither installed nor on the Hub."""
    try:
        return language_model()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def first_layers(folder: Path, layers: int = 3) -> str:
    """A model of its first layers, which trains five times faster and writes no English."""
    source = whole_model().path
    config = {"num_hidden_layers": layers}
    AutoModelForCausalLM.from_pretrained(source, **config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)
