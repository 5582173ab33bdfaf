"""The chain task: the demonstration's sums and differences, with three knobs.

    prompt       7+5-3?
    wording 0    7+5=2;2-3=9#9         the demonstration's text
    wording 4    ?;7+5=2??2-3=9#9      each step opens with a phrase, any of four, that means nothing

How many steps, how often a step slips at the start, and how many ways there are to open a step. The truth: a step's
result is what decides, phrases never do (`tempo_trl.demo.task.first_slip` finds the character on a `plain` text).
"""

import random
import re
from dataclasses import dataclass

from benchmarks.learning.tasks import Task
from tempo_trl.demo.task import draw_problems, first_slip, slipped_solution, worked_solution

PHRASES = (";;", "??", ";?", "?;")
_OPENING = re.compile(r"[;?]{2}(?=[0-9][+-])")


@dataclass(frozen=True)
class Chain(Task):
    """
    Problems of `steps` steps.

    Args:
        steps (`int`, *optional*, defaults to `5`):
            Sums and differences of a problem.
        slip_rate (`float`, *optional*, defaults to `0.15`):
            Probability that the starting policy gets a step's result wrong, as `slipped_solution` does.
        wording (`int`, *optional*, defaults to `0`):
            How many of the `PHRASES` may open a step, all alike; 0 for the demonstration's text.
    """

    steps: int = 5
    slip_rate: float = 0.15
    wording: int = 0

    reward_func = "tempo_trl.demo.task.correct_answer"
    held_out = 256  # evaluations take half of the time of such a run
    delimiters = ("=",)  # where a step may go wrong

    def __post_init__(self):
        if self.wording not in range(len(PHRASES) + 1):
            raise ValueError(f"wording is {self.wording}, expected 0 to {len(PHRASES)}.")

    @property
    def shipped(self) -> bool:
        """The base chain is the demonstration's task, and starts from its policy."""
        return self == Chain()

    @property
    def parent(self) -> "Chain | None":
        """The base chain; of long ones, which are not learned at once, a chain of half their length."""
        if self == Chain():
            return None
        half = self.steps // 2
        return Chain() if half < 2 * Chain().steps else Chain(half, slip_rate_for(self.expected_accuracy, half))

    @property
    def name(self) -> str:
        return f"chain-{self.steps}-slip{self.slip_rate:g}-wording{self.wording}"

    @property
    def tokens(self) -> int:
        """Tokens of a solution, its EOS among them."""
        return 6 * self.steps + 2 + (self.wording > 0) * (self.steps + 1)

    @property
    def expected_accuracy(self) -> float:
        """Of the starting policy, by the slip model: a later slip may cancel an earlier one."""
        return 0.1 + 0.9 * (1 - self.slip_rate / 0.9) ** self.steps

    def draw(self, n: int, rng: random.Random, split: str) -> list[str]:
        """`n` problems of "train" or "test"."""
        return draw_problems(n, rng, self.steps, split)

    def answer(self, problem: str) -> str:
        """What the reward compares with."""
        return worked_solution(problem)[-1]

    def start_solution(self, problem: str, rng: random.Random, taught: float = 1.0) -> str:
        """A solution as the starting policy learns to write them: it slips."""
        return worded(slipped_solution(problem, rng, self.slip_rate), self.wording, rng)


def slip_rate_for(accuracy: float, steps: int) -> float:
    """The slip rate at which a chain of `steps` starts at `accuracy`, to three digits."""
    return round(0.9 * (1 - ((accuracy - 0.1) / 0.9) ** (1 / steps)), 3)


def worded(solution: str, wording: int, rng: random.Random) -> str:
    """`solution` with each step opened by one of `wording` phrases, as it is where `wording` is 0."""
    if not wording:
        return solution
    return "".join(rng.choice(PHRASES[:wording]) + step for step in solution.split(";"))


def plain(completion: str) -> str:
    """A worded text without its phrases, in the demonstration's form; the inverse of `worded`."""
    return _OPENING.sub(";", completion).removeprefix(";")


def slip_index(problem: str, completion: str) -> int | None:
    """Index of the character of a worded text at which its `plain` form first slips; None if it does not."""
    slip = first_slip(problem, plain(completion))
    if slip is None:
        return None
    shortened = {i for phrase in _OPENING.finditer(completion) for i in range(phrase.start(), phrase.end() - 1)}
    kept = [i for i in range(len(completion) + 1) if i not in shortened]  # and the end, where EOS may be early
    return kept[len(kept) - 1 - len(plain(completion)) + slip]  # the plain form begins without a semicolon
