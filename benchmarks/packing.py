"""Savings of an update by computing on the tree: `make bench`, or `python -m benchmarks.packing`.

An update is TRL's loss and its gradient on one group of completions, on an untrained Qwen3 of 4 million parameters in
float32. TRL's own update and the tree's alternate in one run, on the same weights and data. A figure is the median of
the ratios of their CPU times. Activation memory is what the loss stores for its backward pass, without weights.
"prompt": random completions that differ from their first token on. "tree": half of the group shares a quarter of the
completion, pairs share a second quarter, and the rest is independent. All completions have the full length, so no
padding is saved.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.learning.policy import character_tokenizer
from benchmarks.timing import is_quick, print_table
from tempo_trl import PlainGRPOConfig, PlainGRPOTrainer
from tempo_trl.tree_forward.first_batch import PAYING_RATIO
from tempo_trl.tree_forward.packed_rows import pack_rows
from tempo_trl.tree_forward.tree_pass import State

VOCABULARY = 1024
PAIRS = 3
HEADINGS = ("prompt / completion / G", "shared", "tokens / packed", "update", "goal", "activations")
HEADINGS += ("auto takes", "nats off")


class Shape(NamedTuple):
    """Tokens of the prompt and of each completion, completions in the group, and the goal for shared prompts."""

    prompt: int
    completion: int
    group: int
    goal: float

    def __str__(self) -> str:
        return f"{self.prompt:,} / {self.completion:,} / {self.group}"


SHAPES = (Shape(512, 128, 8, 2.5), Shape(256, 256, 8, 1.4), Shape(128, 512, 8, 1.0), Shape(1024, 128, 16, 4.0))
QUICK = (Shape(32, 16, 8, 1.0),)


def policy(device: str) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    if device == "cuda":  # the layers of Qwen3-0.6B
        heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
        size = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
    else:
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
        size = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, max_position_embeddings=2048, **size, **heads))


def build(folder: str, device: str, half: bool) -> PlainGRPOTrainer:
    options = {"use_cpu": device == "cpu", "bf16": False, "report_to": "none", "gradient_checkpointing": False}
    args = PlainGRPOConfig(folder, per_device_train_batch_size=8, tree_forward="on", **options)
    prompts = Dataset.from_dict({"prompt": ["1+1?"]})
    model = policy(device).to(device, torch.bfloat16 if half else torch.float32)
    return PlainGRPOTrainer(model, lambda **columns: [], args, prompts, processing_class=character_tokenizer())


def completions(shape: Shape, sharing: str) -> torch.Tensor:
    """Token ids of a group, `(G, T)`."""
    ids = torch.randint(3, VOCABULARY, (shape.group, shape.completion))
    if sharing == "tree":
        quarter, half = shape.completion // 4, shape.group // 2
        for begin in (0, half):
            ids[begin : begin + half, :quarter] = ids[begin, :quarter]
        ids[1::2, : 2 * quarter] = ids[::2, : 2 * quarter]
    else:
        ids[:, 0] = 3 + torch.arange(shape.group)
    return ids


def scored_group(shape: Shape, sharing: str, device: torch.device) -> dict[str, torch.Tensor]:
    """What TRL's loss takes: a group with random advantages, on policy."""
    torch.manual_seed(1)
    completion_ids = completions(shape, sharing)
    prompt_ids = torch.randint(3, VOCABULARY, (1, shape.prompt)).expand(shape.group, -1)
    batch = {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": completion_ids,
        "completion_mask": torch.ones_like(completion_ids),
        "advantages": torch.randn(shape.group),
        "num_items_in_batch": torch.tensor(completion_ids.numel()),
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}


def token_ratio(batch: dict[str, torch.Tensor]) -> float:
    """Tokens over packed tokens: what the update would gain if it cost the same for every token."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    return ids.numel() / pack_rows(ids, torch.ones_like(ids), batch["completion_ids"].shape[1]).input_ids.shape[1]


def loss_of(trainer: PlainGRPOTrainer, batch: dict, state: State) -> torch.Tensor:
    trainer.tree_pass.state = state
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer.model.zero_grad()
    return trainer._compute_loss(trainer.model, batch)


def time_of(call: Callable[[], object], device: torch.device) -> float:
    """CPU time, or wall time until the GPU is done."""
    if device.type == "cpu":
        start = time.process_time()
        call()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


def time_ratio(trainer: PlainGRPOTrainer, batch: dict, pairs: int) -> float:
    """Time of the stock update over the tree's, the median of pairs that begin with the one and the other."""

    def update(state: State) -> float:
        return time_of(lambda: loss_of(trainer, batch, state).backward(), trainer.accelerator.device)

    update(State.OFF), update(State.IN_USE)  # warm up
    ratios = []
    for pair in range(pairs):
        order = (State.OFF, State.IN_USE) if pair % 2 else (State.IN_USE, State.OFF)
        seconds = {state: update(state) for state in order}
        ratios.append(seconds[State.OFF] / seconds[State.IN_USE])
    return median(ratios)


def kept_bytes(trainer: PlainGRPOTrainer, batch: dict, state: State) -> int:
    """Bytes that the loss keeps for its backward pass, each storage once, without the weights; on a GPU their peak."""
    device = trainer.accelerator.device
    if device.type == "cuda":
        trainer.model.zero_grad()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        loss_of(trainer, batch, state)
        return torch.cuda.max_memory_allocated(device) - before
    storages = {p.untyped_storage().data_ptr(): 0 for p in trainer.model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(trainer, batch, state)  # holds what was kept, so that no address is given out twice
    kept = sum(storages.values())
    loss.backward()
    return kept


def largest_difference(trainer: PlainGRPOTrainer, batch: dict) -> float:
    """Of the log-probabilities on the tree to TRL's, in nats."""
    ids, masks = (torch.cat([batch[f"prompt_{x}"], batch[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
    logps = []
    for state in (State.OFF, State.IN_USE):
        trainer.tree_pass.state = state
        with torch.no_grad():
            width = batch["completion_ids"].shape[1]
            logps.append(trainer._get_per_token_logps_and_entropies(trainer.model, ids, masks, width)[0])
    return (logps[0] - logps[1]).abs().max().item()


def row(trainer: PlainGRPOTrainer, shape: Shape, sharing: str, pairs: int) -> tuple[str, ...]:
    batch = scored_group(shape, sharing, trainer.accelerator.device)
    ratio = token_ratio(batch)
    stock, tree = (kept_bytes(trainer, batch, state) for state in (State.OFF, State.IN_USE))
    return (
        str(shape),
        sharing,
        f"{ratio:.2f}",
        f"x{time_ratio(trainer, batch, pairs):.2f}",
        f"x{shape.goal:.1f}" if sharing == "prompt" else "",
        f"{100 * (tree / stock - 1):+.0f} %",
        "the tree" if ratio >= PAYING_RATIO else "TRL's way",
        f"{largest_difference(trainer, batch):.1e}",
    )


def main() -> None:
    quick = is_quick(__doc__, "only check that it runs: one small shape, twice")
    shapes, pairs = (QUICK, 2) if quick else (SHAPES, PAIRS)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build(folder, "cpu", half=False)
        rows = [row(trainer, shape, sharing, pairs) for sharing in ("prompt", "tree") for shape in shapes]
    print_table("An update on the tree against TRL's", HEADINGS, rows)


if __name__ == "__main__":
    main()
