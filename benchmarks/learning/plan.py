"""The plan task: one early decision, then a noisy execution that no policy can make less noisy.

    prompt       384215?
    completion   ;7731904402#

The first character is the plan, one of four. The right one is that of the problem's first digit modulo 4. Then come
ten digits, one a step, and '#'. Any digits are well-formed, but each may be unlucky: a step fails if the luck of
(problem, step, digit), a fixed number in [0, 1) that looks random, is below the failure rate of the plan, which is low
for the right plan and high for a wrong one. The answer is right if no step failed.

The truth, whatever a policy knows of the problems' plans and whatever digits it writes without knowing the luck:

    P(right) = p (1 - RIGHT_FAILS)^STEPS + (1 - p) (1 - WRONG_FAILS)^STEPS,   p = P(right plan)

so accuracy has a ceiling of 0.78, only the first character can be learned, and each digit's luck is real, exact credit
that teaches nothing about the next problem. That is a deliberate model of what happens outside a policy's control.
"""

import hashlib
import random
import re
from dataclasses import dataclass

from benchmarks.learning.tasks import Task
from tempo_trl.demo.task import SPLITS, split_of

PLANS = "+-=;"
STEPS = 10
RIGHT_FAILS, WRONG_FAILS = 0.025, 0.15
FIRST_LESSONS = 0.9
_WELL_FORMED = re.compile(rf"[{re.escape(PLANS)}][0-9]{{{STEPS}}}#")


@dataclass(frozen=True)
class Plan(Task):
    """
    Args:
        start_right (`float`, *optional*, defaults to `0.4`):
            Probability that the starting policy picks the right plan; the wrong ones are all alike.
    """

    start_right: float = 0.4

    reward_func = "benchmarks.learning.plan.successful"
    held_out = 512
    shipped = False
    delimiters = tuple("0123456789")  # after the plan a step is a digit, each as uncertain as the other

    @property
    def name(self) -> str:
        return f"plan-{self.start_right:g}"

    @property
    def tokens(self) -> int:
        """Tokens of a completion, its EOS among them."""
        return STEPS + 3

    @property
    def expected_accuracy(self) -> float:
        """Of the starting policy, on average over problems."""
        return success_probability(self.start_right)

    def draw(self, n: int, rng: random.Random, split: str) -> list[str]:
        """`n` problems of "train" or "test", of the million there are."""
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
        drawn: list[str] = []
        while len(drawn) < n:
            problem = f"{rng.randrange(10**6):06d}?"
            if split_of(problem) == split:
                drawn.append(problem)
        return drawn

    def answer(self, problem: str) -> str:
        """What the reward reads beside the problem: the right plan."""
        return right_plan(problem)

    def start_solution(self, problem: str, rng: random.Random, taught: float = 1.0) -> str:
        """A completion as the starting policy learns to write them: any digits, and the plan is often wrong.

        Until half of the lessons are `taught` it mostly is right: which one is right would be too faint to learn else.
        """
        share = self.start_right if taught >= 0.5 else FIRST_LESSONS
        right = right_plan(problem)
        plan = right if rng.random() < share else rng.choice(PLANS.replace(right, ""))
        return plan + "".join(rng.choice("0123456789") for _ in range(STEPS)) + "#"


def success_probability(right: float) -> float:
    """Of a policy that picks the right plan with probability `right`, on average over problems."""
    return right * (1 - RIGHT_FAILS) ** STEPS + (1 - right) * (1 - WRONG_FAILS) ** STEPS


def right_plan(problem: str) -> str:
    """The plan that a problem asks for."""
    return PLANS[int(problem[0]) % len(PLANS)]


def luck(problem: str, step: int, digit: str) -> float:
    """A number in [0, 1), always the same for the same step and digit of a problem, and uniform over them."""
    digest = hashlib.blake2b(f"{problem}{step}:{digit}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32


def failure_rate(problem: str, completion: str) -> float:
    """Of each step, by the plan that the completion begins with."""
    return RIGHT_FAILS if completion[0] == right_plan(problem) else WRONG_FAILS


def first_failure(problem: str, completion: str) -> int | None:
    """Index of the digit at which a well-formed completion failed, None if it did not."""
    fails = failure_rate(problem, completion)
    digits = enumerate(completion[1 : STEPS + 1], start=1)
    return next((step for step, digit in digits if luck(problem, step, digit) < fails), None)


def successful(prompts: list[str], completions: list[str], **columns) -> list[float]:
    """TRL reward function: 1.0 for a well-formed completion of which no step failed, else 0.0."""
    return [float(_succeeds(prompt, text)) for prompt, text in zip(prompts, completions, strict=True)]


def _succeeds(problem: str, completion: str) -> bool:
    return bool(_WELL_FORMED.fullmatch(completion)) and first_failure(problem, completion) is None
