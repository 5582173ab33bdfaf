"""Random rollouts of an agent, for tests: turns of one or two tokens with observations between them that come back."""

import numpy as np
import torch

from tempo_trl.credit.anchors import observation_keys
from tempo_trl.credit.turns import turn_starts

OBSERVED = 10  # tokens of observations begin here; those of actions are below


class Rollouts:
    """
    Rows of token ids whose observations are drawn from `states`, so that states come back, also within a row.

    Args:
        seed (`int`): Seed of the random numbers.
        groups, size (`int`): Number of groups, and rows in each.
        states (`int`): Different observations; 0 makes all of them different.
        prompts (`int`): Different prompts in a group.
    """

    def __init__(self, seed: int, groups: int = 2, size: int = 3, states: int = 2, prompts: int = 1):
        rng = np.random.default_rng(seed)
        self.size, rows = size, groups * size
        self.texts = [self._row(rng, states, row) for row in range(rows)]
        width = max(len(text) for text in self.texts) + 1
        self.lengths = torch.tensor([len(text) for text in self.texts])
        self.ids = torch.zeros(rows, width, dtype=torch.long)
        self.turns = torch.full((rows, width), -1)
        for row, text in enumerate(self.texts):
            self.ids[row, : len(text)] = torch.tensor([token for token, _ in text])
            self.turns[row, : len(text)] = torch.tensor([turn for _, turn in text])
        self.prompts = torch.from_numpy(rng.integers(0, prompts, rows))
        self.rewards = torch.from_numpy(rng.integers(0, 4, rows) / 2.0).float()
        self.observations = observation_keys(self.ids, self.turns, self.prompts)
        self.starts = turn_starts(self.turns)

    @staticmethod
    def _row(rng: np.random.Generator, states: int, row: int) -> list[tuple[int, int]]:
        """Tokens with their turns."""
        found = []
        for turn in range(rng.integers(1, 5)):
            if turn:
                seen = rng.integers(0, states) if states else 100 * row + turn
                found += [(OBSERVED + int(seen), -1)] * int(rng.integers(1, 3) if states else 1)
            found += [(int(rng.integers(0, 2)), turn) for _ in range(rng.integers(1, 3))]
        return found

    def histories(self, row: int) -> list[tuple]:
        """What the row had seen before each turn: its prompt, then each observation as a tuple of tokens."""
        seen, current = [(int(self.prompts[row]),)], ()
        found = []
        previous = -1
        for token, turn in self.texts[row]:
            if turn < 0:
                current += (token,)
            elif turn != previous:
                seen += [current] if turn else []
                found.append(tuple(seen))
                current, previous = (), turn
        return found

    def group(self, row: int) -> range:
        """Rows of the row's group."""
        first = row // self.size * self.size
        return range(first, first + self.size)
