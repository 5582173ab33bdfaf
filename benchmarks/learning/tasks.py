"""What the two tasks have in common, and the prompts of a task on disk."""

import json
import random
from pathlib import Path
from typing import Protocol

HELD_OUT = 512  # problems on which a start is measured


class Task(Protocol):
    """A text task whose tokens are characters, of which the truth is known."""

    train_problems = 16_384

    name: str  # says all knobs
    tokens: int  # of a completion
    expected_accuracy: float  # of the starting policy
    reward_func: str  # dotted path
    held_out: int  # problems of each evaluation
    delimiters: tuple[str, ...]  # after which an entropy tree may split
    shipped: bool  # whether it starts from the policy that the package ships

    def draw(self, n: int, rng: random.Random, split: str) -> list[str]: ...

    def answer(self, problem: str) -> str: ...

    def start_solution(self, problem: str, rng: random.Random, taught: float = 1.0) -> str:
        """What the starting policy is taught when this share of its lessons is over."""
        ...

    def rows(self, n: int, seed: int, split: str) -> list[dict]:
        """`n` prompts with what their reward reads."""
        return [{"prompt": p, "answer": self.answer(p)} for p in self.draw(n, random.Random(seed), split)]


def write_prompts(task: Task, folder: Path, held_out: int) -> None:
    """`train.jsonl` and `held_out` rows of `test.jsonl`, the same for all runs of a task: a run's seed orders them."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, n in (("train", task.train_problems), ("test", held_out)):
        lines = (json.dumps(row) for row in task.rows(n, seed=0, split=split))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
