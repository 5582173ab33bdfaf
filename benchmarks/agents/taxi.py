"""Gymnasium's Taxi in words, as an environment for TRL's `environment_factory`.

    prompt   taxi from yellow to red row3 col1
    turn     /drive direction= south
    answer   row4 col1 waiting ; web bell

As in the rooms, an answer is the state and words that mean nothing. Rules and transitions are gymnasium's, none of
which is left to chance here.
"""

import random
from functools import cache

import numpy as np

from benchmarks.tasks.rooms import DECORATED, DECORATIONS, Call, split_of

ROW, COLUMN = range(5), range(5)
STANDS = ("red", "green", "yellow", "blue")  # of Taxi, in gymnasium's order; the next place is in the taxi
ABOARD = len(STANDS)
DISCOUNT = 0.99
LONGEST = 11  # calls of the longest tasks of Taxi: any of its 400 would take a tiny policy too long to learn


class Taxi:
    """A taxi that takes a passenger from one stand to another."""

    turns = 18
    actions = {("drive", direction): action for action, direction in enumerate(("south", "north", "east", "west"))}
    actions |= {("pick", None): 4, ("drop", None): 5}  # of a tool and the direction that it is given
    words = ("taxi", "from", "to", "waiting", "aboard", "won", ";", "/drive", "/pick", "/drop", "direction=")
    words += ("north", "south", "west", "east", *STANDS, *DECORATIONS)
    words += (*(f"row{n}" for n in ROW), *(f"col{n}" for n in COLUMN))
    _made = 0

    def __init__(self, row: int | None = None):
        import gymnasium

        if row is None:
            row, type(self)._made = type(self)._made, type(self)._made + 1
        self._row, self.won = row, False
        self._gym = gymnasium.make("Taxi-v4", max_episode_steps=-1).unwrapped

    def reset(self, start: int, seed: int = 0, **columns) -> str:
        """Begin a task in a state of gymnasium's, and return it in words."""
        self._gym.reset()
        self._gym.s, self._seed, self._turn = start, seed, 0
        self.won = self._over = False
        return self._state()

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

    def _step(self, tool: str, direction: str | None = None) -> str:
        self._turn += 1
        action = self.actions.get((tool, direction))
        if action is not None and not self._over and self._turn <= self.turns:
            _, reward, self._over, *_ = self._gym.step(action)
            self.won = bool(self._over and reward > 0)
        rng = random.Random(f"{self._seed} {self._row} {self._turn}")
        return " ".join([self._state(), ";", *(rng.choice(DECORATIONS) for _ in range(DECORATED))])

    def _state(self) -> str:
        row, column, passenger, _ = self._gym.decode(int(self._gym.s))
        place = "won" if self.won else "aboard" if passenger == ABOARD else "waiting"
        return f"row{row} col{column} {place}"

    def _state_key(self) -> str:
        return f"{int(self._gym.s)} {self._over}"

    def _calls(self) -> list[Call]:
        return [_call(*named) for named in self.actions]

    def _best_call(self) -> Call | None:
        """The call with the highest value under gymnasium's own rules; None when the task is over."""
        if self._over or self._turn >= self.turns:
            return None
        values = action_values()[int(self._gym.s)]
        return _call(*max(self.actions, key=lambda named: values[self.actions[named]]))


def _call(tool: str, direction: str | None) -> Call:
    return tool, {} if direction is None else {"direction": direction}


@cache
def action_values() -> np.ndarray:
    """Discounted probability of winning after each action, by value iteration, `(states, actions)`."""
    rules = Taxi(0)._gym.P
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


def taxi_rows(n: int, rng: random.Random, split: str = "train") -> list[dict]:
    """Rows of Taxi whose best play has at most `LONGEST` calls. The splits have no task in common."""
    tasks = [state for state in short_tasks() if split_of(state) == split]
    return [_taxi_row(rng.choice(tasks), seed) for seed in range(n)]


@cache
def short_tasks() -> list[int]:
    """States of Taxi in which a passenger waits and the best play has at most `LONGEST` calls."""
    best = action_values().max(axis=1)
    waiting = [state for state in range(len(best)) if state // 4 % 5 not in (ABOARD, state % 4)]
    return [state for state in waiting if best[state] > DISCOUNT ** (LONGEST - 0.5)]


def _taxi_row(state: int, seed: int) -> dict:
    at, to = state // 4 % 5, state % 4  # gymnasium's code: ((row * 5 + column) * 5 + passenger) * 4 + destination
    prompt = [{"role": "user", "content": f"taxi from {STANDS[at]} to {STANDS[to]} "}]
    return {"prompt": prompt, "start": state, "seed": seed}
