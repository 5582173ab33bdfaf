"""The worlds: an environment, the tasks in it, and how well the starting policy plays."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

PLAYED = 500  # episodes from which the expected accuracy of a start is taken
TRAIN_TASKS = 4096


@dataclass(frozen=True)
class World:
    """
    Args:
        name (`str`): What it is called.
        environment (`str`): Dotted path of the environment's class; it has `words` and `turns`.
        draw (`str`): Dotted path of the function that draws rows of a split of the tasks.
        tokens (`int`): Tokens that a policy writes in an episode of all turns.
        skill (`float`): Probability that a call of the starting policy is the best one; others are drawn from all.
        shipped (`bool`): Whether it starts from the policy that the package ships.
    """

    name: str
    environment: str
    draw: str
    tokens: int
    skill: float
    shipped: bool = False

    reward_func = "tempo_trl.data.rooms.room_reward"
    held_out = 128
    parent = None
    delimiters = ()

    @property
    def make(self) -> Callable:
        """The environment's class."""
        return named(self.environment)

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary of the world."""
        return self.make.words

    @property
    def turns(self) -> int:
        """Calls after which an episode ends."""
        return self.make.turns

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

    @property
    def draw_tasks(self) -> Callable:
        """The function that draws rows, of their number, a `random.Random` and a split."""
        return named(self.draw)

    def write_prompts(self, folder: Path) -> None:
        """`train.jsonl` and `test.jsonl`, the same for all runs in a world: a run's seed orders them."""
        folder.mkdir(parents=True, exist_ok=True)
        for split, n in (("train", TRAIN_TASKS), ("test", self.held_out)):
            lines = (json.dumps(row) for row in self.rows(n, 0, split))
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def named(path: str) -> Callable:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


GYM = "benchmarks.agents.gym_worlds"
LAKE = World("lake", f"{GYM}.FrozenLake", f"{GYM}.lake_rows", 50, 0.5)
SLIPPERY_LAKE = World("slippery_lake", f"{GYM}.SlipperyLake", f"{GYM}.lake_rows", 82, 0.6)
TAXI = World("taxi", f"{GYM}.Taxi", f"{GYM}.taxi_rows", 74, 0.5)
ROOMS = World("rooms", "tempo_trl.data.rooms.Rooms", "tempo_trl.data.rooms.draw_tasks", 50, 0.4, shipped=True)
