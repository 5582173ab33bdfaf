"""An oracle of each world: advantages Q(s, a) - V(s) from the world's own rules and a tabular model of the policy.

The calls of the policy are counted, for each thing that it can see. The probability of winning from each state
follows, by dynamic programming over the turns that are left. It is an oracle of the world, not of the policy: words
that a policy might react to are ignored, and counts are those of the last generations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.agents.policy import word_tokenizer
from benchmarks.agents.rules import TABLES, Rules

if TYPE_CHECKING:
    from tempo_trl import Batch, Credit

DONE = -1  # a turn without a call, which ends the episode
KEPT = 0.5  # of the counts, from one generation to the next
PRIOR = 0.2  # counts of each call before any was seen


@dataclass(frozen=True)
class Episode:
    """What was played: the task's rules, the state before each turn, and its call, an index of the calls or `DONE`."""

    rules: Rules
    states: list[int]
    calls: list[int]


class Oracle:
    """A credit function: each token of a turn gets the advantage of its call, over the rewards' standard deviation.

    Args:
        world (`str`): Name of a world of `TABLES`.
    """

    def __init__(self, world: str):
        self.tables = TABLES[world]
        self.counts = torch.full((self.tables.n_cells, len(self.tables.calls)), PRIOR)

    def __call__(self, batch: "Batch") -> "Credit":
        from tempo_trl import Credit

        episodes = [self._episode(batch, row) for row in range(len(batch.completion_ids))]
        seen = self._counted(episodes)
        shares = (self.counts + seen * batch.training).numpy()
        shares = shares / shares.sum(axis=-1, keepdims=True)
        all_rules = {episode.rules for episode in episodes}
        worth = {rules: values(rules, shares, self.tables.turns) for rules in all_rules}
        scale = max(float(batch.rewards.std()), 1e-4)
        advantages = torch.zeros(batch.completion_ids.shape)
        for row, episode in enumerate(episodes):
            own = turn_advantages(episode, worth[episode.rules])
            advantages[row] = torch.tensor([*own, 0.0])[batch.turns[row]] / scale  # turn -1 reads the last entry
        return Credit(advantages, statistics=seen)

    def update(self, statistics: Sequence[torch.Tensor]) -> None:
        """Add the counts of all ranks to what is kept of the old ones."""
        self.counts = KEPT * (self.counts - PRIOR) + PRIOR + sum(statistics)

    def state_dict(self) -> dict:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict) -> None:
        self.counts = state["counts"]

    @cached_property
    def _tokenizer(self):
        return word_tokenizer(self.tables.words)

    def _episode(self, batch: "Batch", row: int) -> Episode:
        """The rules, states and calls of a row, read from its text; a state is in the answer before its turn."""
        ids, turns = batch.completion_ids[row], batch.turns[row]
        task = tuple(batch.columns[name][row] for name in self.tables.columns)
        states, calls, end = [batch.columns["start"][row]], [], 0
        for turn in range(int(turns.max()) + 1):
            own = torch.nonzero(turns == turn).flatten()
            if turn:
                known = self.tables.state(self._tokenizer.decode(ids[end : own[0]]), task)
                states.append(states[-1] if known is None else known)  # a tool that fails leaves things as they are
            calls.append(self._call(self._tokenizer.decode(ids[own])))
            end = int(own[-1]) + 1
        return Episode(self.tables.rules(task), states, calls)

    def _call(self, text: str) -> int:
        return next((i for i, call in enumerate(self.tables.calls) if f"{text} ".startswith(f"{call} ")), DONE)

    def _counted(self, episodes: Sequence[Episode]) -> torch.Tensor:
        """How often each call was made in each cell before the end of its episode, `(cells, calls)`."""
        counts = torch.zeros_like(self.counts)
        for episode in episodes:
            rules = episode.rules
            for state, call in zip(episode.states[: self.tables.turns], episode.calls, strict=False):
                if call != DONE and not rules.over[state]:
                    counts[rules.cells[state], call] += 1
        return counts


def values(rules: Rules, shares: np.ndarray, turns: int) -> np.ndarray:
    """Probability of winning by turns left and state, `(turns + 1, S)`, of a policy with these shares of calls."""
    table = np.zeros((turns + 1, len(rules.won)))
    table[:, rules.won] = 1.0
    for left in range(1, turns + 1):
        after = np.einsum("sc,cs->s", shares[rules.cells], rules.steps @ table[left - 1])
        table[left, ~rules.over] = after[~rules.over]
    return table


def turn_advantages(episode: Episode, table: np.ndarray) -> list[float]:
    """Q - V of each turn: what its call changes in the probability of winning. Giving up is worth nothing."""
    turns = len(table) - 1
    return [
        _advantage(state, call, episode.rules, table, turns - turn)
        for turn, (state, call) in enumerate(zip(episode.states, episode.calls, strict=True))
    ]


def _advantage(state: int, call: int, rules: Rules, table: np.ndarray, left: int) -> float:
    if left <= 0 or rules.over[state]:
        return 0.0
    after = 0.0 if call == DONE else rules.steps[call, state] @ table[left - 1]
    return float(after - table[left, state])


# What a recipe's `credit_func` names.
rooms_oracle, lake_oracle, slippery_lake_oracle, taxi_oracle = map(Oracle, TABLES)
