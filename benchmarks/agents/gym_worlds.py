"""Gymnasium's FrozenLake and Taxi in words, as environments for TRL's `environment_factory`.

    prompt   lake square0                        taxi from yellow to red row3 col1
    turn     /move direction= east               /drive direction= south
    answer   square1 ; lamp dust                 row4 col1 waiting ; web bell

As in `tempo_trl.data.rooms`, an answer is the state and words that mean nothing. Rules and transitions are
gymnasium's, none of which is left to chance here.
"""

import random
from functools import cache

import numpy as np

from tempo_trl.data.rooms import DECORATED, DECORATIONS, SPLITS, Call, split_of

ROW, COLUMN = range(5), range(5)
STANDS = ("red", "green", "yellow", "blue")  # of Taxi, in gymnasium's order; the next place is in the taxi
ABOARD = len(STANDS)
DISCOUNT = 0.99
LONGEST = 11  # calls of the longest tasks of Taxi: any of its 400 would take a tiny policy too long to learn


class GymWorld:
    """An environment of gymnasium. A subclass names it, gives each call its action, and puts a state into words."""

    id: str
    options: dict = {}
    actions: dict[tuple[str, str | None], int]  # of a tool and the direction that it is given
    turns: int
    _made = 0

    def __init__(self, row: int | None = None):
        import gymnasium

        if row is None:
            row, type(self)._made = type(self)._made, type(self)._made + 1
        self._row, self.won = row, False
        self._gym = gymnasium.make(self.id, max_episode_steps=-1, **self.options).unwrapped

    def reset(self, start: int, seed: int = 0, **columns) -> str:
        """Begin a task in a state of gymnasium's, and return it in words."""
        self._gym.reset()
        self._gym.s, self._seed, self._turn = start, seed, 0
        self.won = self._over = False
        return self._state()

    def _step(self, tool: str, direction: str | None = None) -> str:
        self._turn += 1
        action = self.actions.get((tool, direction))
        if action is not None and not self._over and self._turn <= self.turns:
            _, reward, self._over, *_ = self._gym.step(action)
            self.won = bool(self._over and reward > 0)
        rng = random.Random(f"{self._seed} {self._row} {self._turn}")
        return " ".join([self._state(), ";", *(rng.choice(DECORATIONS) for _ in range(DECORATED))])

    def _state_key(self) -> str:
        return f"{int(self._gym.s)} {self._over}"

    def _calls(self) -> list[Call]:
        return [_call(*named) for named in self.actions]

    def _best_call(self) -> Call | None:
        """The call with the highest value under gymnasium's own rules; None when the task is over."""
        if self._over or self._turn >= self.turns:
            return None
        values = action_values(type(self))[int(self._gym.s)]
        return _call(*max(self.actions, key=lambda named: values[self.actions[named]]))


def _call(tool: str, direction: str | None) -> Call:
    return tool, {} if direction is None else {"direction": direction}


class FrozenLake(GymWorld):
    """The lake of 4 x 4 squares. It does not slip."""

    id, options, turns = "FrozenLake-v1", {"is_slippery": False}, 12
    actions = {("move", direction): action for action, direction in enumerate(("west", "south", "east", "north"))}
    words = ("lake", "fell", "won", ";", "/move", "direction=", "north", "south", "west", "east", *DECORATIONS)
    words += tuple(f"square{square}" for square in range(16))

    def move(self, direction: str) -> str:
        """
        Walk to the next square.

        Args:
            direction: north, south, west or east.
        """
        return self._step("move", direction)

    def _state(self) -> str:
        return f"square{int(self._gym.s)}{' won' if self.won else ' fell' if self._over else ''}"


class Taxi(GymWorld):
    """A taxi that takes a passenger from one stand to another."""

    id, turns = "Taxi-v4", 18
    actions = {("drive", direction): action for action, direction in enumerate(("south", "north", "east", "west"))}
    actions |= {("pick", None): 4, ("drop", None): 5}
    words = ("taxi", "from", "to", "waiting", "aboard", "won", ";", "/drive", "/pick", "/drop", "direction=")
    words += ("north", "south", "west", "east", *STANDS, *DECORATIONS)
    words += (*(f"row{n}" for n in ROW), *(f"col{n}" for n in COLUMN))

    def drive(self, direction: str) -> str:
        """
        Drive to the next square. Walls stop you.

        Args:
            direction: north, south, west or east.
        """
        return self._step("drive", direction)

    def pick(self) -> str:
        """Let the passenger in, if you are at their stand."""
        return self._step("pick")

    def drop(self) -> str:
        """Let the passenger out, if you are at their destination."""
        return self._step("drop")

    def _state(self) -> str:
        row, column, passenger, _ = self._gym.decode(int(self._gym.s))
        place = "won" if self.won else "aboard" if passenger == ABOARD else "waiting"
        return f"row{row} col{column} {place}"


@cache
def action_values(world: type[GymWorld]) -> np.ndarray:
    """Discounted probability of winning after each action, by value iteration, `(states, actions)`."""
    rules = world(0)._gym.P
    table = np.zeros((len(rules), len(rules[0])))
    for _ in range(500):
        best = table.max(axis=1)
        new = np.array([[_expected(rules[s][a], best) for a in rules[s]] for s in rules])
        if np.abs(new - table).max() < 1e-9:
            break
        table = new
    return new


def _expected(outcomes: list[tuple], best: np.ndarray) -> float:
    return sum(p * (float(reward > 0) if over else DISCOUNT * best[state]) for p, state, reward, over in outcomes)


def lake_rows(n: int, rng: random.Random, split: str = "train") -> list[dict]:
    """Rows of FrozenLake, all from the first square. Rows of the two splits differ in their seeds."""
    first = 10**6 * SPLITS.index(split)
    return [{"prompt": _prompt("lake "), "start": 0, "seed": first + rng.randrange(10**6)} for _ in range(n)]


def taxi_rows(n: int, rng: random.Random, split: str = "train") -> list[dict]:
    """Rows of Taxi whose best play has at most `LONGEST` calls. The splits have no task in common."""
    tasks = [state for state in short_tasks() if split_of(state) == split]
    return [_taxi_row(rng.choice(tasks), seed) for seed in range(n)]


@cache
def short_tasks() -> list[int]:
    """States of Taxi in which a passenger waits and the best play has at most `LONGEST` calls."""
    best = action_values(Taxi).max(axis=1)
    waiting = [state for state in range(len(best)) if state // 4 % 5 not in (ABOARD, state % 4)]
    return [state for state in waiting if best[state] > DISCOUNT ** (LONGEST - 0.5)]


def _taxi_row(state: int, seed: int) -> dict:
    at, to = state // 4 % 5, state % 4  # gymnasium's code: ((row * 5 + column) * 5 + passenger) * 4 + destination
    return {"prompt": _prompt(f"taxi from {STANDS[at]} to {STANDS[to]} "), "start": state, "seed": seed}


def _prompt(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]
