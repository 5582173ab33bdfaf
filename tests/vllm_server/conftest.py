"""One vLLM server for all tests of a worker, with a tiny model that it can run on the CPU."""

import pytest
import torch
from transformers import GenerationConfig, Qwen3ForCausalLM

from ..tiny import tiny_model_config, tiny_tokenizer


@pytest.fixture(scope="session")
def served_model(tmp_path_factory) -> str:
    """Folder of a tiny Qwen3 in a shape that vLLM's attention takes.

    Its sharp next-token distribution lets sampled completions share prefixes without top_k, under which the server's
    log-probabilities would not be the trainer's.
    """
    folder = tmp_path_factory.mktemp("served") / "tiny-qwen3"
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32, "max_position_embeddings": 256}
    model = Qwen3ForCausalLM(tiny_model_config(len(tokenizer), **shape))
    with torch.no_grad():
        model.lm_head.weight *= 12
    ends = [tokenizer.eos_token_id, *range(20, len(tokenizer), 20)]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def server(served_model, tmp_path_factory):
    from .server import running

    with running(served_model, tmp_path_factory.mktemp("server")) as server:
        yield server
