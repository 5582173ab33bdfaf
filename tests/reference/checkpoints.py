"""Checkpoints of the old layout, small enough to keep: what they hold of a method, and the run that goes on from them.

A checkpoint has every file that a resume reads; what only a reader of the model wants (tokenizer, chat template,
pickled arguments) is left out.
"""

import shutil
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3ForCausalLM

from ..tiny import tiny_model_config, tiny_tokenizer
from .cases import CASES, trainer_of
from .record import trained
from .summary import HERE, summary, write

FOLDER = HERE / "checkpoints"
RESUMED = ("prefix baseline", "ppo", "ppo, shared trunk")
SHAPE = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8}
UNREAD = ("tokenizer*", "chat_template*", "training_args.bin")


def save_model(folder: Path) -> None:
    """A model of 20 kB, with the tiny one's tokenizer. Its weights do not matter: a checkpoint brings its own."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(tiny_model_config(len(tokenizer), **SHAPE))
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make(out: Path) -> None:
    """Train each case, and go on from its checkpoint in another folder."""
    save_model(out / "model")
    seen = {case: resumed(case, out) for case in RESUMED}
    torch.save(seen, out / "rank0.pt")


def resumed(case: str, out: Path) -> dict:
    model, options = str(out / "model"), CASES[case]
    trained(trainer_of(options, model, str(out / case)))
    return trained(trainer_of(options, model, str(out / f"{case}, resumed")), str(out / case / "checkpoint-2"))


def write_reference(out: Path, header: dict) -> None:
    """Keep the checkpoints that `make` resumed from, and what the resumed runs did."""
    seen = torch.load(out / "rank0.pt", weights_only=False)
    unread = shutil.ignore_patterns(*UNREAD)
    for case in RESUMED:
        shutil.copytree(out / case / "checkpoint-2", FOLDER / case, ignore=unread, dirs_exist_ok=True)
    write(FOLDER / "resumed.json", header | {case: summary(seen[case]) for case in RESUMED})
