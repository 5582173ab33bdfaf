"""The chain task: the sums and differences that the package ships, each step of which may slip.

    prompt       7+5-3?
    completion   7+5=2;2-3=9#9

A step's result is what decides, and the wording is fixed. So completions part only where one of them slips.
"""

import random
import re
from dataclasses import dataclass

from benchmarks.learning.tasks import Task
from tempo_trl.demo.task import STEPS, draw_problems, worked_solution


@dataclass(frozen=True)
class Chain(Task):
    """
    Problems of five steps.

    Args:
        slip_rate (`float`, *optional*, defaults to `0.15`):
            Probability that the starting policy gets a step's result wrong, as `slipped_solution` does.
    """

    slip_rate: float = 0.15

    name = "chain"
    reward_func = "tempo_trl.demo.task.correct_answer"
    tokens = 6 * STEPS + 2  # of a solution, its EOS among them
    held_out = 256  # evaluations take half of the time of such a run
    delimiters = ("=",)  # where a step may go wrong
    shipped = True

    @property
    def expected_accuracy(self) -> float:
        """Of the starting policy, by the slip model: a later slip may cancel an earlier one."""
        return 0.1 + 0.9 * (1 - self.slip_rate / 0.9) ** STEPS

    def draw(self, n: int, rng: random.Random, split: str) -> list[str]:
        """`n` problems of "train" or "test"."""
        return draw_problems(n, rng, STEPS, split)

    def answer(self, problem: str) -> str:
        """What the reward compares with."""
        return worked_solution(problem)[-1]

    def start_solution(self, problem: str, rng: random.Random, taught: float = 1.0) -> str:
        """A solution as the starting policy learns to write them: it slips."""
        return slipped_solution(problem, rng, self.slip_rate)


def slipped_solution(problem: str, rng: random.Random, slip_rate: float) -> str:
    """
    A solution in which each result is wrong with probability `slip_rate`. Wrong digits are equally likely.

    After a wrong step it continues consistently from the wrong value, so a later slip may cancel an earlier one: after
    n steps the final answer is right with probability 0.1 + 0.9 (1 - slip_rate / 0.9)^n.
    """
    value, steps = int(problem[0]), []
    for term in re.findall("[+-][0-9]", problem):
        result = (value + int(term) + rng.randint(1, 9) * (rng.random() < slip_rate)) % 10
        steps.append(f"{value}{term}={result}")
        value = result
    return f"{';'.join(steps)}#{value}"
