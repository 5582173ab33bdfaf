"""The cost of credit for agents: `make bench`, or `python -m benchmarks.agent_credit [--quick]`.

Every figure but the seconds is a ratio of two times of the same run, because absolute times depend on the machine. The
data are random tokens: completions of many turns. Half of a turn's tokens are sampled, the others observed after it.
Observations come from 20 states, which come back within a completion and over those of a group.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.timing import is_quick, print_table, seconds
from tempo_trl import Batch
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.methods.gigpo import gigpo_credit
from tempo_trl.methods.hgpo import hgpo_credit
from tempo_trl.methods.tempo import tempo_credit

STATES = 20
UNDER = "under 16, as a square would be"


class Size(NamedTuple):
    """Groups, completions in each, most turns of a completion, and tokens of a turn."""

    groups: int
    completions: int
    turns: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.groups} x {self.completions} x {self.turns} turns x {self.tokens} tokens"


FULL, QUICK = Size(64, 8, 30, 100), Size(4, 4, 6, 10)


def agent_batch(size: Size, seed: int = 0) -> Batch:
    """Random completions of an agent, with a reward for each turn."""
    rng = np.random.default_rng(seed)
    rows, width = size.groups * size.completions, size.turns * size.tokens
    count, sampled = rng.integers(2 * size.turns // 3, size.turns + 1, rows), size.tokens // 2
    lengths, column = count * size.tokens - (size.tokens - sampled), np.arange(width)
    turns = np.where(column % size.tokens < sampled, column // size.tokens, -1)
    turns = torch.from_numpy(np.where(column < lengths[:, None], turns, -1))
    seen = rng.integers(1, STATES + 1, (rows, size.turns))
    seen[:, 0] = STATES + 1  # the prompt
    rewards = torch.from_numpy(rng.integers(0, 2, rows)).float()
    outcome = outcome_advantages(rewards, size.completions).float()
    return Batch(
        completion_ids=torch.from_numpy(rng.integers(0, 150_000, (rows, width))),
        lengths=torch.from_numpy(lengths),
        rewards=rewards,
        rewards_per_func=rewards[:, None],
        advantages=outcome,
        outcome=outcome,
        num_generations=size.completions,
        prompts=torch.arange(size.groups).repeat_interleave(size.completions),
        loss_mask=turns >= 0,
        turns=turns,
        steps=turns,
        observations=torch.from_numpy(np.where(np.arange(size.turns) < count[:, None], seen, 0)[:, : count.max()]),
        counted=torch.ones(rows, dtype=torch.bool),
        step_rewards=torch.from_numpy(rng.random((rows, size.turns))).float()[:, : count.max()],
    )


FUNCTIONS = {"GiGPO": gigpo_credit, "HGPO": hgpo_credit}


def times(size: Size) -> dict[str, float]:
    """Seconds of each credit function at this size."""
    batch = agent_batch(size)
    return {name: seconds(lambda of=function: of(batch)) for name, function in FUNCTIONS.items()}


def rows(size: Size) -> list[tuple[str, str, str]]:
    usual, batch = times(size), agent_batch(size)
    tree = seconds(lambda: tempo_credit(replace(batch)))  # of a new batch, whose tree is not built yet
    longer, more = times(size._replace(tokens=4 * size.tokens)), times(size._replace(turns=4 * size.turns))
    few = size._replace(groups=size.groups // 4)
    larger, smaller = times(few._replace(completions=4 * size.completions)), times(few)
    return [
        row
        for name, spent in usual.items()
        for row in (
            (name, f"{spent:.3f} s", ""),
            (f"{name} / TEMPO's credit on the tree", f"{spent / tree:.1f}", "at most 80"),
            (f"{name}: 4 times the tokens", f"{longer[name] / spent:.1f}", UNDER),
            (f"{name}: 4 times the turns", f"{more[name] / spent:.1f}", UNDER),
            (f"{name}: 4 times the group", f"{larger[name] / smaller[name]:.1f}", UNDER),
        )
    ]


def main(arguments: list[str] | None = None) -> None:
    size = QUICK if is_quick(__doc__, "tiny sizes, whose times mean nothing", arguments) else FULL
    print_table(f"The cost of credit for agents: {size}", ("figure", "measured", "goal"), rows(size))


if __name__ == "__main__":
    main()
