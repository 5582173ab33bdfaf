"""The task `sums`: chained one-digit sums and differences modulo 10, written out step by step.

    prompt      7+5-3?
    completion  7+5=2;2-3=9#9

Each step's result, modulo 10, begins the next step; the final answer follows '#'. It needs no download, and a tiny
policy has learned it from solutions with errors, and makes such errors itself: a Qwen3 of 0.8 million parameters whose
tokens are single characters. Its folder `start` is an ordinary model folder, which
`python -m benchmarks.learning.warm_start` recreates in a clone of the repository.
"""

import random
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

STEPS = 5
TRAIN_PROBLEMS = 8192
HELD_OUT = 512  # problems of each evaluation
SPLITS = ("train", "test")


def policy_path() -> Path:
    """The shipped model folder, for `from_pretrained`, TRL's `model` or a server."""
    return Path(__file__).with_name("start")


def worked_solution(problem: str) -> str:
    """The only correct solution of `problem`: "7+5-3?" gives "7+5=2;2-3=9#9"."""
    value, steps = int(problem[0]), []
    for term in re.findall("[+-][0-9]", problem):
        result = (value + int(term)) % 10
        steps.append(f"{value}{term}={result}")
        value = result
    return f"{';'.join(steps)}#{value}"


def correct_answer(completions: list[str], answer: list[str], **columns) -> list[float]:
    """TRL reward function: 1.0 if the text after a completion's last '#' is the answer, else 0.0.

    Only the answer counts: a solution whose mistakes cancel gets 1.0.
    """
    return [float(text.endswith(f"#{digit}")) for text, digit in zip(completions, answer, strict=True)]


def problems(n: int, seed: int, steps: int = STEPS, split: str = "train") -> "Dataset":
    """`n` problems of `steps` steps, as a dataset with the string columns `prompt` and `answer` (one digit).

    The split of a problem depends only on the problem (`split_of`), so "train" and "test" never overlap, for any
    seeds. Problems are drawn with replacement from all 10 * 20^steps problems.

    Raises:
        ValueError: from `draw_problems`.
    """
    from datasets import Dataset

    prompts = draw_problems(n, random.Random(seed), steps, split)
    return Dataset.from_dict({"prompt": prompts, "answer": [worked_solution(prompt)[-1] for prompt in prompts]})


def load(split: str, seed: int) -> "Dataset":
    """The problems of a run: 8,192 to train on, and 512 that are held out."""
    return problems({"train": TRAIN_PROBLEMS, "test": HELD_OUT}[split], seed, split=split)


def draw_problems(n: int, rng: random.Random, steps: int = STEPS, split: str = "train") -> list[str]:
    """`n` problems of `split`, uniformly distributed over its problems with `steps` steps.

    Raises:
        ValueError: if `split` is neither "train" nor "test".
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    drawn: list[str] = []
    while len(drawn) < n:
        terms = (rng.choice("+-") + rng.choice("0123456789") for _ in range(steps))
        problem = f"{rng.choice('0123456789')}{''.join(terms)}?"
        if split_of(problem) == split:
            drawn.append(problem)
    return drawn


def split_of(problem: str) -> str:
    """The split of a problem, by a checksum of its text: "test" for one in ten, else "train"."""
    # Not hash(), which differs between Python processes.
    return "test" if zlib.crc32(problem.encode()) % 10 == 0 else "train"
