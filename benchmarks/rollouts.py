"""Cost of a grown tree relative to independent completions: `python -m benchmarks.rollouts [--quick]`.

Every figure is a ratio of two measurements of one run, with the same model, prompts, sampling settings and number of
leaves. The tree, on our transformers sampler, and independent completions, on TRL's own `generate`, alternate. Tokens
are generated tokens: a shared token counts once. Forward passes are sequential, so narrow batches take time by the
number of passes, not by tokens. Seconds are CPU seconds of one thread. Completions have the full length (the end of
sequence is suppressed), so that both generate equally many tokens.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from datasets import Dataset
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from benchmarks.learning.policy import CHARACTERS, character_tokenizer, load_policy
from benchmarks.timing import is_quick, print_table
from benchmarks.training_step import policy as ten_million
from benchmarks.training_step import random_reward
from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import Grower
from tempo_trl.rollout.tree_rollout import TreeRollout


def trainer_of(model: PreTrainedModel, folder: str, grower: Grower, tokens: int) -> GRPOTrainer:
    """A trainer whose completions all have `tokens` tokens."""
    tokenizer = character_tokenizer()
    args = GRPOConfig(
        folder,
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=grower.num_generations,
        num_generations=grower.num_generations,
        max_completion_length=tokens,
        generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id, tokenizer.pad_token_id]},
        report_to="none",
        gradient_checkpointing=False,
    )
    prompts = Dataset.from_dict({"prompt": ["1+2+3?"]})
    return GRPOTrainer(
        model, random_reward, args, prompts, processing_class=tokenizer, rollout_func=TreeRollout(grower)
    )


class Cost(NamedTuple):
    """Of a call: tokens that it generated, forward passes one after another, and CPU seconds."""

    tokens: float
    passes: int
    seconds: float


def cost(call: Callable[[], float], model: PreTrainedModel) -> Cost:
    """Cost of a call that says how many tokens it has generated."""
    passes = []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    start = time.process_time()
    tokens = call()
    seconds = time.process_time() - start
    hook.remove()
    return Cost(tokens, len(passes), seconds)


def compare(trainer: GRPOTrainer, turns: int) -> tuple[float, ...]:
    """Leaves of a tree, then the cost of trees over that of as many independent completions."""
    rollout, prompts = trainer.rollout_func, ["12+34+5?", "7-3+21?"]

    def trees() -> float:
        rollout([prompt for prompt in prompts for _ in range(trainer.num_generations)], trainer)
        return rollout.statistics()["generated_tokens"][0]

    def independent() -> float:
        leaves = [len(tree.leaves()) for tree in rollout.trees]
        rows = [prompt for prompt, count in zip(prompts, leaves, strict=True) for _ in range(count)]
        completion_ids, _ = trainer._generate_single_turn(trainer._tokenize_prompts(rows)[0], None, {}, 1)
        return sum(map(len, completion_ids))

    trainer.model.train()
    trees(), independent()  # warm
    leaves, ours, theirs = 0.0, [], []
    for _ in range(turns):
        ours.append(cost(trees, trainer.model))
        theirs.append(cost(independent, trainer.model))
        leaves += rollout.statistics()["leaves"][0] / len(prompts) / turns
    sums = [(sum(a), sum(b)) for a, b in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)]
    return leaves, *(a / b for a, b in sums)


def growers(tokens: int) -> dict[str, Grower]:
    """Shapes of 8 and 16 leaves. Any character ends a thought here: the demo's texts have no sentences."""
    uncertain = {"entropy_threshold": 0.0, "delimiters": tuple(CHARACTERS), "min_segment_tokens": tokens // 6}
    return {
        "fixed, 2 children, depth 3": FixedTree(2, 3, -(-tokens // 3)),
        "fixed, 4 children, depth 2": FixedTree(4, 2, tokens // 2),
        "entropy, 8 completions": EntropyTree(8, **uncertain),
    }


def rows(quick: bool) -> Iterator[tuple[str, ...]]:
    models = {"demo policy, 0.8M": (load_policy()[0], 96)}
    if not quick:
        models["random Qwen3, 10M"] = (ten_million(), 128)
    for name, (model, tokens) in models.items():
        for shape, grower in growers(tokens).items():
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(0)
                leaves, *over = compare(trainer_of(model, folder, grower, tokens), turns=2)
            yield f"{name}, {tokens} tokens: {shape}", f"{leaves:.1f}", *(f"{ratio:.2f}" for ratio in over)


def main() -> None:
    quick = is_quick(__doc__, "the demo's policy only")
    headings = ("run", "leaves", "tokens", "forward passes", "CPU seconds")
    print_table("Trees over as many independent completions", headings, rows(quick))


if __name__ == "__main__":
    main()
