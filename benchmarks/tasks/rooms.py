"""A world for an agent that calls tools: nine rooms, a key, and an exit that opens only with the key.

    room0 - room1 - room2        prompt      key room2 exit room6 room4
      |               |          turn        /go direction= east
    room3 - room4 - room5        answer      room5 ; lamp dust
      |       |       |
    room6   room7 - room8

An answer has two parts: the state (the room, and `key` once it is carried), and words that mean nothing, which are
drawn again at each turn. Completions therefore part at the first answer, even where they are in the same state.
"""

import itertools
import random
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

STEPS = {"north": -3, "south": 3, "west": -1, "east": 1}
DOORS = {(0, 1), (1, 2), (0, 3), (2, 5), (3, 4), (4, 5), (3, 6), (4, 7), (5, 8), (7, 8)}
ROOMS, TURNS = 9, 12
DECORATIONS = ("dust", "lamp", "moss", "rug", "vase", "clock", "chair", "web", "coin", "book", "bell", "rope")
DECORATED = 2  # words of an answer that mean nothing
WORDS = ("key", "exit", ";", "/go", "/take", "direction=", *STEPS, *DECORATIONS, *(f"room{n}" for n in range(ROOMS)))
TRAIN_PROBLEMS, HELD_OUT = 4096, 256
START = Path(__file__).with_name("rooms_start")  # the folder of a tiny policy that plays badly
SPLITS = ("train", "test")

Call = tuple[str, dict[str, str]]  # name of a tool and its arguments


class Rooms:
    """
    An environment for TRL's `environment_factory`: `go` and `take` are its tools, other methods are private.

    Example:

    ```python
    trainer = TEMPOTrainer(policy, room_reward, args, problems(4096, seed=0), environment_factory=Rooms)
    ```

    Args:
        row (`int`, *optional*):
            Which words an environment shows depends on the task's `seed`, this number and the turn. Defaults to the
            number of environments that were made before in this process. TRL makes one environment per completion of
            a batch and reuses them in order, so the completions of a group have different numbers.
    """

    words, turns = WORDS, TURNS
    _made = itertools.count()

    def __init__(self, row: int | None = None):
        self._row = next(Rooms._made) if row is None else row
        self.won = False

    def reset(self, start: int, key: int, goal: int, seed: int = 0, **columns) -> str:
        """Begin a task, and return its first state, which is the same for the whole group."""
        self._room, self._key, self._goal, self._seed = start, key, goal, seed
        self._carries, self._turn, self.won = False, 0, False
        return self._state()

    def go(self, direction: str) -> str:
        """
        Walk through a door. Where there is none, you stay.

        Args:
            direction: north, south, west or east.
        """
        self._room = neighbour(self._room, direction)
        return self._answer()

    def take(self) -> str:
        """Pick up the key, if it is in this room."""
        self._carries = self._carries or self._room == self._key
        return self._answer()

    def _answer(self) -> str:
        self._turn += 1
        in_time = self._turn <= TURNS
        self.won = self.won or (in_time and self._carries and self._room == self._goal)
        rng = random.Random(f"{self._seed} {self._row} {self._turn}")
        return " ".join([self._state(), ";", *(rng.choice(DECORATIONS) for _ in range(DECORATED))])

    def _state(self) -> str:
        return f"room{self._room}{' key' if self._carries else ''}{' exit' if self.won else ''}"

    def _state_key(self) -> str:
        """The true state: whatever comes after depends on the past only through it and the turns that are left."""
        return f"{self._key} {self._goal} {self._state()}"

    def _calls(self) -> list[Call]:
        """What an agent can do."""
        return [("go", {"direction": direction}) for direction in STEPS] + [("take", {})]

    def _best_call(self) -> Call | None:
        """The next call on a shortest path to the exit; None when the task is over."""
        if self.won or self._turn >= TURNS:
            return None
        if not self._carries and self._room == self._key:
            return "take", {}
        return "go", {"direction": next_direction(self._room, self._goal if self._carries else self._key)}


def room_reward(completions: list, environments: list[Rooms], **columns) -> list[float]:
    """TRL reward function: 1.0 if the agent reached the exit with the key in time, else 0.0."""
    return [float(environment.won) for environment in environments]


def state_text(text: str) -> str:
    """An answer without the words that mean nothing: "room5 key ; lamp dust" gives "room5 key"."""
    return text.partition(";")[0].strip()


def neighbour(room: int, direction: str) -> int:
    """The room behind a door; the same room if there is no door in that direction."""
    other = room + STEPS.get(direction, 0)
    return other if (min(room, other), max(room, other)) in DOORS else room


def distance(room: int, target: int) -> int:
    """Doors on a shortest path."""
    reached, doors = {room}, 0
    while target not in reached:
        reached |= {neighbour(one, direction) for one in reached for direction in STEPS}
        doors += 1
    return doors


def next_direction(room: int, target: int) -> str:
    """First direction of a shortest path to another room; of equally short ones the first in the order of `STEPS`."""

    def length(direction: str) -> int:
        other = neighbour(room, direction)
        return ROOMS if other == room else distance(other, target)

    return min(STEPS, key=length)


def problems(n: int, seed: int, split: str = "train") -> "Dataset":
    """`n` tasks of a split, with the columns `prompt` (one message), `start`, `key`, `goal` and `seed`.

    A task is three different rooms. "train" and "test" have no task in common, for any seeds.

    Raises:
        ValueError: if `split` is neither "train" nor "test".
    """
    from datasets import Dataset

    return Dataset.from_list(draw_tasks(n, random.Random(seed), split))


def load(split: str, seed: int) -> "Dataset":
    """The tasks of a run: 4,096 to train on, and 256 that are held out."""
    return problems({"train": TRAIN_PROBLEMS, "test": HELD_OUT}[split], seed, split)


def draw_tasks(n: int, rng: random.Random, split: str = "train") -> list[dict]:
    """The rows of [`problems`].

    Raises:
        ValueError: if `split` is neither "train" nor "test".
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    tasks = [task for task in itertools.permutations(range(ROOMS), 3) if split_of(task) == split]
    return [_row(*rng.choice(tasks), seed) for seed in range(n)]


def split_of(task: int | tuple[int, ...]) -> str:
    """The split of a task, by a checksum: "test" for about one in five, else "train"."""
    return "test" if zlib.crc32(repr(task).encode()) % 5 == 0 else "train"


def _row(start: int, key: int, goal: int, seed: int) -> dict:
    prompt = [{"role": "user", "content": f"key room{key} exit room{goal} "}]
    return {"prompt": prompt, "start": start, "key": key, "goal": goal, "seed": seed}
