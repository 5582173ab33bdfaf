"""The worlds' rules as tables: what each call leads to from each state, for the oracle."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from benchmarks.agents.gym_worlds import ABOARD, FrozenLake, GymWorld, SlipperyLake, Taxi
from tempo_trl.data import rooms

Task = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rules:
    """
    The rules of a task with S states and C calls.

    Args:
        steps (`np.ndarray` of shape `(C, S, S)`): Probability of each next state.
        over, won (`np.ndarray` of shape `(S,)`): Whether the episode has ended there, and whether it is won.
        cells (`np.ndarray` of shape `(S,)`): The row of the counts for calls from this state. States that look alike
            to the policy have the same.
    """

    steps: np.ndarray
    over: np.ndarray
    won: np.ndarray
    cells: np.ndarray


class RoomTables:
    """The nine rooms. State: whether the key is carried, and the room. Cell: the room, and where to go next."""

    columns = ("key", "goal")
    calls = (*(f"/go direction= {direction}" for direction in rooms.STEPS), "/take")
    turns, n_cells, words = rooms.TURNS, rooms.ROOMS**2, rooms.WORDS
    _answer = re.compile(r"room(\d)( key)?")

    def rules(self, task: Task) -> Rules:
        """The rules where the key and the exit are in these rooms."""
        return _room_rules(*task)

    def state(self, answer: str, task: Task) -> int | None:
        """The state of which an answer tells, if it does."""
        found = self._answer.search(answer)
        return found and int(found[1]) + rooms.ROOMS * bool(found[2])


@cache
def _room_rules(key: int, goal: int) -> Rules:
    n = 2 * rooms.ROOMS
    steps, over, cells = np.zeros((len(RoomTables.calls), n, n)), np.zeros(n, bool), np.zeros(n, int)
    for state in range(n):
        carries, room = divmod(state, rooms.ROOMS)
        over[state] = carries and room == goal
        cells[state] = room * rooms.ROOMS + (goal if carries else key)
        for call, direction in enumerate((*rooms.STEPS, "")):
            carried = carries or (not direction and room == key)
            steps[call, state, carried * rooms.ROOMS + rooms.neighbour(room, direction)] = 1
    return Rules(steps, over, over, cells)


class GymTables:
    """A world of gymnasium, whose rules are the same for all tasks."""

    def __init__(
        self,
        world: type[GymWorld],
        columns: tuple[str, ...],
        state: Callable[..., int | None],
        cell: Callable[[int], int],
        n_cells: int,
    ):
        self.world, self.columns, self.n_cells = world, columns, n_cells
        self._state_of, self._cell_of = state, cell
        self.calls = tuple(f"/{tool} direction= {way}" if way else f"/{tool}" for tool, way in world.actions)
        self.turns, self.words = world.turns, world.words

    @cached_property
    def _rules(self) -> Rules:
        table = self.world(0)._gym.P
        steps = np.zeros((len(self.calls), len(table), len(table)))
        over, won = np.zeros(len(table), bool), np.zeros(len(table), bool)
        for state, outcomes in table.items():
            for call, action in enumerate(self.world.actions.values()):
                for p, after, reward, ends in outcomes[action]:
                    steps[call, state, after] += p
                    over[after] |= ends
                    won[after] |= ends and reward > 0
        return Rules(steps, over, won, np.array([self._cell_of(state) for state in table]))

    def rules(self, task: Task) -> Rules:
        """The rules of all tasks."""
        return self._rules

    def state(self, answer: str, task: Task) -> int | None:
        """The state of which an answer tells, if it does."""
        return self._state_of(answer, *task)


def _square(answer: str) -> int | None:
    found = re.search(r"square(\d+)", answer)
    return found and int(found[1])


def _taxi_state(answer: str, start: int) -> int | None:
    found = re.search(r"row(\d) col(\d) (waiting|aboard|won)", answer)
    if found is None:
        return None
    row, column, place = found.groups()
    at, to = start // 4 % 5, start % 4
    passenger = {"waiting": at, "aboard": ABOARD, "won": to}[place]
    return ((int(row) * 5 + int(column)) * 5 + passenger) * 4 + to


def _taxi_cell(state: int) -> int:
    """By square, whether the passenger is aboard, and the stand to which the taxi has to go next."""
    square, passenger, to = state // 20, state // 4 % 5, state % 4
    aboard = passenger == ABOARD
    return (square * 2 + aboard) * 4 + (to if aboard else passenger)


TABLES = {
    "rooms": RoomTables(),
    "lake": GymTables(FrozenLake, (), _square, int, 16),
    "slippery_lake": GymTables(SlipperyLake, (), _square, int, 16),
    "taxi": GymTables(Taxi, ("start",), _taxi_state, _taxi_cell, 200),
}
