"""An oracle of the rooms: advantages Q(s, a) - V(s) from the world's own rules and a tabular model of the policy.

How the policy moves is counted: which call it makes in a room, and to which room it has to go next. The probability of
winning from each state follows, by dynamic programming over the turns that are left. It is an oracle of the world, not
of the policy: words that a policy might react to are ignored, and counts are those of the last generations.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from tempo_trl.demo.agent_policy import word_tokenizer
from tempo_trl.demo.rooms import ROOMS, STEPS, TURNS, WORDS, neighbour

if TYPE_CHECKING:
    from tempo_trl import Batch, Credit

CALLS = (*STEPS, "take")
DONE = len(CALLS)  # a turn without a call, which ends the episode
KEPT = 0.5  # of the counts, from one generation to the next
PRIOR = 0.2  # counts of each call before any was seen
NEXT = np.array([[neighbour(room, direction) for direction in STEPS] for room in range(ROOMS)])
_CALL = re.compile(r"/(?:go direction= (\w+)|(take))")


class RoomsOracle:
    """A credit function: each token of a turn gets the advantage of its call, over the rewards' standard deviation."""

    def __init__(self):
        self.counts = torch.full((ROOMS, ROOMS, len(CALLS)), PRIOR)  # (room, target, call)

    def __call__(self, batch: "Batch") -> "Credit":
        from tempo_trl import Credit

        played = [_calls(*row) for row in zip(batch.completion_ids, batch.turns, strict=True)]
        tasks = [tuple(batch.columns[name][row] for name in ("start", "key", "goal")) for row in range(len(played))]
        seen = _counted(played, tasks)
        shares = (self.counts + seen * batch.training).numpy()
        shares = shares / shares.sum(axis=-1, keepdims=True)
        tables = {(key, goal): values(key, goal, shares) for _, key, goal in tasks}
        scale = max(float(batch.rewards.std()), 1e-4)
        advantages = torch.zeros(batch.completion_ids.shape)
        for row, (calls, task) in enumerate(zip(played, tasks, strict=True)):
            own = _advantages(calls, *task, tables[task[1:]])
            advantages[row] = torch.tensor([*own, 0.0])[batch.turns[row]] / scale  # turn -1 reads the last entry
        return Credit(advantages, statistics=seen)

    def update(self, statistics: Sequence[torch.Tensor]) -> None:
        """Add the counts of all ranks to what is kept of the old ones."""
        self.counts = KEPT * (self.counts - PRIOR) + PRIOR + sum(statistics)

    def state_dict(self) -> dict:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict) -> None:
        self.counts = state["counts"]


rooms_oracle = RoomsOracle()  # what a recipe's `credit_func` names


@cache
def _tokenizer():
    return word_tokenizer(WORDS)


def _calls(ids: torch.Tensor, turns: torch.Tensor) -> list[int]:
    """The call of each turn, as an index of `CALLS`; `DONE` for text that is no call of the world."""
    texts = [_tokenizer().decode(ids[turns == turn]) for turn in range(int(turns.max()) + 1)]
    named = [found and (found[1] or found[2]) for found in map(_CALL.match, texts)]
    return [CALLS.index(name) if name in CALLS else DONE for name in named]


def after(room: int, carries: bool, key: int, call: int) -> tuple[int, bool]:
    """Room, and whether the key is carried, after a call."""
    if call < len(STEPS):
        return int(NEXT[room, call]), carries
    return room, carries or room == key


def _counted(played: Sequence[list[int]], tasks: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """How often each call was made, `(room, target, call)`."""
    counts = torch.zeros(ROOMS, ROOMS, len(CALLS))
    for calls, (room, key, goal) in zip(played, tasks, strict=True):
        carries = False
        for call in calls[:TURNS]:
            if call == DONE or (carries and room == goal):
                break
            counts[room, goal if carries else key, call] += 1
            room, carries = after(room, carries, key, call)
    return counts


def values(key: int, goal: int, shares: np.ndarray) -> np.ndarray:
    """Probability of winning, `(TURNS + 1, 2, ROOMS)`, by turns left, whether the key is carried, and room."""
    table = np.zeros((TURNS + 1, 2, ROOMS))
    table[:, 1, goal] = 1.0
    for left in range(1, TURNS + 1):
        for carries in (0, 1):
            for room in range(ROOMS):
                if not (carries and room == goal):
                    table[left, carries, room] = shares[room, goal if carries else key] @ [
                        table[(left - 1, *_place(*after(room, bool(carries), key, call)))]
                        for call in range(len(CALLS))
                    ]
    return table


def _place(room: int, carries: bool) -> tuple[int, int]:
    return int(carries), room


def _advantages(calls: list[int], room: int, key: int, goal: int, table: np.ndarray) -> list[float]:
    """Q - V of each turn: what its call changes in the probability of winning. Giving up is worth nothing."""
    carries, advantages = False, []
    for turn, call in enumerate(calls):
        left = TURNS - turn
        value = table[(max(left, 0), *_place(room, carries))]
        if call == DONE:
            over = left <= 0 or (carries and room == goal)
            advantages.append(0.0 if over else -value)
        elif left <= 0:
            advantages.append(0.0)
        else:
            room, carries = after(room, carries, key, call)
            advantages.append(table[(left - 1, *_place(room, carries))] - value)
    return [float(one) for one in advantages]
