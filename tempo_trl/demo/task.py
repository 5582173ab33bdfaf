"""The task of the demo: chained one-digit sums and differences modulo 10, written out step by step.

    prompt      7+5-3?
    completion  7+5=2;2-3=9#9

Each step's result, modulo 10, begins the next step; the final answer follows '#'. There is only one correct way to
write a solution, so the decisive token is known: the character at which a completion leaves it (`first_slip`).
"""

import random
import re
import zlib
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

STEPS = 5
TRAIN_PROBLEMS = 8192
HELD_OUT = 512  # problems of each evaluation
SPLITS = ("train", "test")
_PROBLEM = re.compile(r"[0-9]([+-][0-9])+\?")


def worked_solution(problem: str) -> str:
    """The only correct solution of `problem`: "7+5-3?" gives "7+5=2;2-3=9#9".

    Raises:
        ValueError: if `problem` is not digits joined by '+' and '-' and closed by '?'.
    """
    return _solution(problem, lambda result: result)


def slipped_solution(problem: str, rng: random.Random, slip_rate: float) -> str:
    """A solution in which each result is wrong with probability `slip_rate`. Wrong digits are equally likely.

    After a wrong step it continues consistently from the wrong value, so a later slip may cancel an earlier one: after
    n steps the final answer is right with probability 0.1 + 0.9 (1 - slip_rate / 0.9)^n. `slip_rate` 0 is
    `worked_solution`.

    Raises:
        ValueError: if `slip_rate` is not between 0 and 1, or from `worked_solution`.
    """
    if not 0 <= slip_rate <= 1:
        raise ValueError(f"slip_rate is {slip_rate}, expected a probability. Choose it between 0 and 1.")
    return _solution(problem, lambda result: (result + rng.randint(1, 9) * (rng.random() < slip_rate)) % 10)


def _solution(problem: str, written: Callable[[int], int]) -> str:
    if not _PROBLEM.fullmatch(problem):
        raise ValueError(
            f"{problem!r} is not a problem of this task, expected digits joined by + and -. Use '7+5-3?', for example."
        )
    value, steps = int(problem[0]), []
    for term in re.findall("[+-][0-9]", problem):
        result = written((value + int(term)) % 10)
        steps.append(f"{value}{term}={result}")
        value = result
    return f"{';'.join(steps)}#{value}"


def first_slip(problem: str, completion: str) -> int | None:
    """Index of the first character of `completion` that deviates from the correct solution; None if none does.

    A wrong result, a wrongly copied operand, a malformed character and a final answer other than the last result are
    all slips. A completion that stops too early slips at `len(completion)`, the position of its EOS. With the
    character tokenizer of `tempo_trl.demo.policy` this is also the index of the token.

    Raises:
        ValueError: from `worked_solution`.
    """
    pairs = enumerate(zip_longest(completion, worked_solution(problem)))
    return next((index for index, (written, right) in pairs if written != right), None)


def correct_answer(completions: list[str], answer: list[str], **columns) -> list[float]:
    """TRL reward function: 1.0 if the text after a completion's last '#' is the answer, else 0.0.

    Only the answer counts: a solution whose slips cancel gets 1.0.

    Raises:
        ValueError: if the completions are conversational (lists of messages) rather than plain text.
    """
    if not all(isinstance(completion, str) for completion in completions):
        kind = type(completions[0]).__name__
        raise ValueError(f"completions have type {kind}, expected plain text. Use prompts that are strings.")
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
        ValueError: if `split` is neither "train" nor "test", or `steps` is below 1.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected at least 1. Raise it.")
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
