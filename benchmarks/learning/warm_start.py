"""Recreate the starting policy of the demo, in little more than a minute on two cores:

    python -m benchmarks.learning.warm_start [--output tempo_trl/demo/start] [--seed 0]

The policy is trained on solutions in which each step is wrong with probability 0.15. It learns the arithmetic and the
slips, and solves nearly half of the problems. The folder's README.md has the measured numbers.
"""

import argparse
import random
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.learning.chain import Chain
from benchmarks.learning.policy import EOS, PAD, TOKENS, character_tokenizer, load_policy
from benchmarks.learning.tasks import Task
from tempo_trl.demo.task import (
    HELD_OUT,
    STEPS,
    correct_answer,
    draw_problems,
    policy_path,
    worked_solution,
)
from tempo_trl.runs.statistics import wilson

SLIP_RATE = 0.15
TRAIN_STEPS, BATCH_SIZE, LEARNING_RATE = 1000, 32, 2e-3
CARD_HEAD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [tempo]
---
"""


def warm_started_policy(seed: int, train_steps: int = TRAIN_STEPS, batch_size: int = BATCH_SIZE) -> Qwen3ForCausalLM:
    """A policy trained from random weights, in float32, on slipped solutions of training problems.

    Equal arguments give equal weights on one machine at one number of threads.
    """
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(tiny_policy_config())
    batches = lessons(Chain(slip_rate=SLIP_RATE), character_tokenizer(), random.Random(seed), train_steps, batch_size)
    return supervised(model, batches, train_steps)


def supervised(
    model: Qwen3ForCausalLM,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    train_steps: int,
    learning_rate: float = LEARNING_RATE,
) -> Qwen3ForCausalLM:
    """`model`, trained on `train_steps` pairs of `input_ids` and `labels`."""
    # The second moment averages over 50 batches, not AdamW's usual 1,000: that is the whole run.
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=train_steps, pct_start=0.1, cycle_momentum=False
    )
    for input_ids, labels in batches:
        model(input_ids=input_ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


def lessons(
    task: Task, tokenizer: PreTrainedTokenizerFast, rng: random.Random, n_batches: int, batch_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """`n_batches` of `labelled_batch` of training problems, each with a solution as the task has it at that time."""
    for n in range(n_batches):
        problems = task.draw(batch_size, rng, "train")
        solutions = [task.start_solution(problem, rng, n / n_batches) for problem in problems]
        yield labelled_batch(tokenizer, problems, solutions)


def labelled_batch(
    tokenizer: PreTrainedTokenizerFast, problems: list[str], solutions: list[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and `labels`, each int64 (batch_size, T): problem, solution, EOS; prompts are not labelled.

    All texts have one length, and all problems: no padding, no mask.
    """
    texts = [problem + text + tokenizer.eos_token for problem, text in zip(problems, solutions, strict=True)]
    input_ids = tokenizer(texts, return_tensors="pt").input_ids
    labels = input_ids.clone()
    labels[:, : len(problems[0])] = -100
    return input_ids, labels


def sampled_completions(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: list[str],
    seed: int,
    greedy: bool = False,
    max_length: int = 48,
) -> list[str]:
    """One completion per problem, sampled at temperature 1 from the whole vocabulary, or greedy."""
    torch.manual_seed(seed)
    prompts = tokenizer(problems, return_tensors="pt", padding=True)
    sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0}
    sequences = model.generate(**prompts, **sampling, max_new_tokens=max_length)
    return tokenizer.batch_decode(sequences[:, prompts.input_ids.shape[1] :], skip_special_tokens=True)


def accuracy(problems: list[str], completions: list[str]) -> float:
    """Share of the completions whose final answer is right."""
    rewards = correct_answer(completions, [worked_solution(problem)[-1] for problem in problems])
    return sum(rewards) / len(rewards)


def slip_rates(problems: list[str], completions: list[str]) -> tuple[float, float]:
    """Wrong results per step, up to the first slip, and share of completions whose first slip is of another kind.

    Other slips are a wrongly copied operand, a malformed character or an answer that is not the last result. The
    problems have `STEPS` steps.
    """
    slips = [first_slip(problem, completion) for problem, completion in zip(problems, completions, strict=True)]
    width = len("7+5=2;")
    steps_taken = sum(STEPS if slip is None else min(STEPS, slip // width + 1) for slip in slips)
    wrong_results = sum(slip is not None and slip % width == "7+5=2;".index("2") for slip in slips)
    return wrong_results / steps_taken, 1 - (wrong_results + slips.count(None)) / len(slips)


def first_slip(problem: str, completion: str) -> int | None:
    """
    Index of the first character of `completion` that deviates from the correct solution; None if none does.

    A completion that stops too early slips at `len(completion)`, the position of its EOS.
    """
    pairs = enumerate(zip_longest(completion, worked_solution(problem)))
    return next((index for index, (written, right) in pairs if written != right), None)


def tiny_policy_config(width: int = 128, layers: int = 4, max_length: int = 128) -> Qwen3Config:
    """A Qwen3 with grouped-query attention and heads of size 32: by default four layers, 0.8 million parameters.

    `width` must be a multiple of 64.
    """
    return Qwen3Config(
        vocab_size=len(TOKENS),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 64,
        head_dim=32,
        max_position_embeddings=max_length,
        # vLLM's weight transfer does not update a tied head.
        tie_word_embeddings=False,
        pad_token_id=TOKENS.index(PAD),
        eos_token_id=TOKENS.index(EOS),
    )


def write_policy(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save model and tokenizer to `folder`, the weights in float16."""
    # Only the file is in half precision, to keep it small: with float32 in its configuration it loads as float32.
    model.save_pretrained(folder, state_dict={name: weight.half() for name, weight in model.state_dict().items()})
    tokenizer.save_pretrained(folder)


def write_card(folder: Path, seed: int) -> str:
    """Measure the policy in `folder`, and write and return its README.md."""
    model, tokenizer = load_policy(folder)
    problems = draw_problems(HELD_OUT, random.Random(seed), split="test")
    completions = sampled_completions(model, tokenizer, problems, seed)
    share = accuracy(problems, completions)
    low, high = wilson(share, HELD_OUT)
    wrong_results, elsewhere = slip_rates(problems, completions)
    greedy = accuracy(problems, sampled_completions(model, tokenizer, problems, seed, greedy=True))
    card = f"""\
{CARD_HEAD}# Starting policy of tempo_trl's demonstration

A Qwen3 of {model.num_parameters():,} parameters, one character a token, that solves chained one-digit sums and \
differences modulo
10 (`7+5-3?` -> `7+5=2;2-3=9#9`) and slips: it was trained on solutions in which each step is wrong with probability
{SLIP_RATE}. Stored in float16, declared float32: it loads in float32 unless told otherwise.

Made by `python -m benchmarks.learning.warm_start --seed {seed}` ({TRAIN_STEPS} batches of {BATCH_SIZE}, AdamW) with
torch {version("torch")} and transformers {version("transformers")}. The same seed gives the same \
weights on one machine at one number of threads.

Measured on {HELD_OUT} held-out problems of {STEPS} steps, one completion each:

| | |
|---|---|
| accuracy, temperature 1 | {share:.3f} (95% Wilson interval {low:.3f} to {high:.3f}) |
| accuracy, greedy | {greedy:.3f} |
| wrong results a step, up to the first slip | {wrong_results:.3f} |
| completions that first slip elsewhere | {elsewhere:.3f} |
"""
    (folder / "README.md").write_text(card)
    return card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=policy_path(), help="folder to write; default: the shipped one")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, problems and slips; default: 0")
    arguments = parser.parse_args()
    write_policy(warm_started_policy(arguments.seed), character_tokenizer(), arguments.output)
    print(write_card(arguments.output, arguments.seed))


if __name__ == "__main__":
    main()
