"""The starting policies: one per task, created once and kept in the output folder.

The chain starts from the policy that the package ships, the plan from a smaller one, taught from random weights.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from benchmarks.learning.tasks import HELD_OUT, Task, write_prompts

WIDTH, LAYERS = 64, 2  # 0.1 million parameters
BATCH_SIZE, SEED = 64, 0
LEARNING_RATE = 5e-3
PROMPT_ROOM = 48  # tokens of a prompt at most


class Untaught(RuntimeError):
    """A starting policy that has not learned its task."""


@dataclass(frozen=True)
class Start:
    """
    The start of all runs of a task: `folder` holds the policy, `prompts/` the problems, start.json its accuracy.

    Args:
        task (`Task`): The task.
        folder (`Path`): Its folder.
        train_steps (`int`): Batches of lessons of a policy that is taught.
        fewer (`int`, *optional*): Problems of each evaluation, instead of the task's.
    """

    task: Task
    folder: Path
    train_steps: int
    fewer: int | None = None

    least = 0.7  # of the expected accuracy, from which on a start has learned its task

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts"

    @property
    def held_out(self) -> int:
        return self.fewer or self.task.held_out

    @property
    def max_completion_length(self) -> int:
        return self.task.tokens + 8

    @classmethod
    def beneath(cls, starts: Path, task: Task, train_steps: int, fewer: int | None = None) -> "Start":
        """The start of a task, by its name in the folder of all starts."""
        return cls(task, starts / f"{task.name}-{train_steps}", train_steps, fewer)

    def is_made(self) -> bool:
        return (self.folder / "start.json").exists()

    def check(self) -> None:
        """
        Raises:
            Untaught: the policy is far from the accuracy that it was taught, so learning would start elsewhere.
        """
        numbers = json.loads((self.folder / "start.json").read_text())
        if numbers["measured"] < self.least * numbers["expected"]:
            raise Untaught(
                f"The starting policy in {self.folder} solves {numbers['measured']:.0%} of held-out problems, "
                f"expected {numbers['expected']:.0%}: its training failed. Remove the folder, and raise START_STEPS "
                "in benchmarks/learning/experiment.py."
            )

    def make(self) -> None:
        """Train the policy, or take the shipped one; write it and the prompts, and measure it."""
        from benchmarks.learning.warm_start import write_policy  # torch: not needed to plan

        write_prompts(self.task, self.prompts, self.held_out)
        model, tokenizer = self._policy(), self._tokenizer()
        write_policy(model, tokenizer, self.folder)
        numbers = {"expected": self.task.expected_accuracy, "measured": self._measured(model, tokenizer)}
        # Last: the file says that the rest is whole.
        (self.folder / "start.json").write_text(json.dumps(numbers | {"train_steps": self.train_steps}))

    def _measured(self, model, tokenizer) -> float:
        """Share of held-out problems that the policy solves."""
        from benchmarks.learning.warm_start import sampled_completions

        problems = self.task.draw(HELD_OUT, random.Random(SEED), "test")
        completions = sampled_completions(model, tokenizer, problems, SEED, max_length=self.max_completion_length)
        return sum(rewards(self.task, problems, completions)) / len(problems)

    @property
    def _positions(self) -> int:
        return PROMPT_ROOM + self.max_completion_length

    def _tokenizer(self):
        from benchmarks.learning.policy import character_tokenizer

        return character_tokenizer(self._positions)

    def _policy(self):
        from benchmarks.learning.policy import load_policy

        if self.task.shipped:
            return load_policy()[0]
        return self._taught(self._untaught(), self.train_steps, LEARNING_RATE)

    def _untaught(self):
        import torch
        from transformers import Qwen3ForCausalLM

        from benchmarks.learning.warm_start import tiny_policy_config

        torch.manual_seed(SEED)
        return Qwen3ForCausalLM(tiny_policy_config(WIDTH, LAYERS, self._positions))

    def _taught(self, model, steps: int, learning_rate: float):
        """`model` after as many batches of solutions as the task would have them."""
        from benchmarks.learning.warm_start import lessons, supervised

        batches = lessons(self.task, self._tokenizer(), random.Random(SEED), steps, BATCH_SIZE)
        return supervised(model.train(), batches, steps, learning_rate)


def rewards(task: Task, problems: list[str], completions: list[str]) -> list[float]:
    """What the task's reward function pays."""
    function = resolve_name(task.reward_func)
    return function(prompts=problems, completions=completions, answer=[task.answer(p) for p in problems])
