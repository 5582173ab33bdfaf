"""The worlds: an environment, the tasks in it, and how well the starting policy plays."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from benchmarks.agents.taxi import Taxi, taxi_rows
from benchmarks.tasks.rooms import Rooms, draw_tasks

PLAYED = 500  # episodes from which the expected accuracy of a start is taken


@dataclass(frozen=True)
class World:
    """
    Args:
        name (`str`): What it is called.
        make (`type`): The environment's class. `words` is its vocabulary, `turns` the calls that end an episode.
        draw_tasks (`Callable`): Draws rows, of their number, a `random.Random` and a split.
        tokens (`int`): Tokens that a policy writes in an episode of all turns.
        skill (`float`): Probability that a call of the starting policy is the best one; others are drawn from all.
        shipped (`bool`): Whether it starts from the policy that the package ships.
    """

    name: str
    make: type
    draw_tasks: Callable
    tokens: int
    skill: float
    shipped: bool = False

    reward_func = "benchmarks.tasks.rooms.room_reward"
    train_problems, held_out = 4096, 128
    delimiters = ()

    @property
    def environment(self) -> str:
        """Dotted path of the environment's class, for `environment_factory` in a recipe."""
        return f"{self.make.__module__}.{self.make.__qualname__}"

    @cached_property
    def expected_accuracy(self) -> float:
        """Of the play that the starting policy is taught, on held-out tasks."""
        from benchmarks.agents.warm_start import played

        rng, environment, won = random.Random(0), self.make(0), 0
        for row in self.rows(PLAYED, 0, "test"):
            played(environment, row, rng, self.skill)
            won += environment.won
        return won / PLAYED

    def rows(self, n: int, seed: int, split: str = "train") -> list[dict]:
        """`n` rows of the dataset."""
        return self.draw_tasks(n, random.Random(seed), split)


TAXI = World("taxi", Taxi, taxi_rows, 74, 0.5)
ROOMS = World("rooms", Rooms, draw_tasks, 50, 0.4, shipped=True)
