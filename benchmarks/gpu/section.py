"""What the sections share: models of known shape from random weights, and how rows leave their process."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerCallback

from benchmarks.learning.policy import character_tokenizer

Row = tuple[str, str]  # what was measured, and what came out
RESULT = "rows: "  # before the JSON that a section prints last

_QWEN3 = {"vocab_size": 151_936, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
_QWEN3 |= {"head_dim": 128, "tie_word_embeddings": True, "max_position_embeddings": 40_960}
QWEN3_0_6B = _QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072}
QWEN3_1_7B = _QWEN3 | {"hidden_size": 2048, "intermediate_size": 6144}
QWEN3_TINY = {
    "vocab_size": len(character_tokenizer()),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}


@contextmanager
def saved_policy(full: dict, tiny: bool) -> Iterator[tuple[str, Path]]:
    """
    An untrained Qwen3 of the shape `full`, or a `tiny` one, with the demonstration's tokenizer, as `from_pretrained`
    takes it; and a folder for runs of it.
    """
    torch.manual_seed(0)
    tokenizer = character_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    policy = Qwen3ForCausalLM(Qwen3Config(**(QWEN3_TINY if tiny else full), **ends)).to(torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model"
        policy.save_pretrained(model)
        tokenizer.save_pretrained(model)
        yield model, Path(folder)


def demo_run(model: str, folder: Path, tiny: bool, *flags: str) -> list[str]:
    """Flags of `tempo-trl train` for a short run of TEMPO on the demonstration's task."""
    rows, length = (8, 8) if tiny else (64, 256)
    run = f"--method tempo --task sums --reward_funcs tempo_trl.demo.task.correct_answer --output_dir {folder}"
    sizes = f"--num_generations 8 --per_device_train_batch_size {rows} --max_completion_length {length} --max_steps 3"
    quiet = "--report_to none --save_strategy no --logging_steps 1 --disable_tqdm true --eval_strategy no"
    return [*f"{run} {sizes} {quiet} --model_name_or_path {model} --bf16 true".split(), *flags]


def wait_for(device: torch.device) -> None:
    """Return once the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Meter(TrainerCallback):
    """Seconds and peak bytes of each optimizer step, with what it has queued."""

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: list[float] = []
        self.peak: list[int] = []

    def on_step_begin(self, args, state, control, **kwargs):
        wait_for(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.began = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        wait_for(self.device)
        self.seconds.append(time.perf_counter() - self.began)
        self.peak.append(torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0)


def gigabytes(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def main(rows: Callable[[torch.device, bool], list[Row]]) -> None:
    """Run a section: `-m benchmarks.gpu.SECTION DEVICE tiny|full`."""
    device, size = sys.argv[1:]
    print(RESULT + json.dumps(rows(torch.device(device), size == "tiny")))
