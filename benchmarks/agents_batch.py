"""What the trainer does for agents beside credit: `make bench`, or `python -m benchmarks.agents_batch [--quick]`.

Every figure is a ratio of two times of the same run, because absolute times depend on the machine. A batch is 64
groups of 8 conversations with 32 turns of 100 tokens, 70 of them sampled and 30 observed. Measured is all of
`batch_of`, from TRL's scored rows to the batch that a credit function gets: turns, steps, keys of prompts and states.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hashlib
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.learning.policy import character_tokenizer
from benchmarks.timing import RATIO, is_quick, print_table, seconds
from tempo_trl.credit.batch import Batch
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import Place, ScoredRows
from tempo_trl.trainers.whole_groups import batch_of

TOKENIZER = character_tokenizer()
DELIMITER, LETTERS, STATES = ";", range(10), 50
SIZE, SAMPLED = 8, 0.7


class Shape(NamedTuple):
    groups: int = 64
    turns: int = 32
    tokens: int = 100  # of a turn and the answer to it
    steps: int = 0  # that a delimiter cuts a conversation into; 0 for whole turns

    def __str__(self) -> str:
        steps = f", {self.steps} steps" if self.steps else ""
        return f"{self.groups} x {SIZE} x {self.turns} turns x {self.tokens:,} tokens{steps}"


def conversations(shape: Shape, seed: int = 0) -> ScoredRows:
    """Random conversations in which `STATES` answers of each group come back, as TRL hands them over."""
    rng = np.random.default_rng(seed)
    rows, width = shape.groups * SIZE, shape.turns * shape.tokens
    own = round(SAMPLED * shape.tokens)
    ids = rng.choice(LETTERS, (rows, shape.turns, shape.tokens))
    answers = rng.integers(0, STATES, (rows, shape.turns))
    texts = rng.choice(LETTERS, (shape.groups, STATES, shape.tokens - own))
    ids[:, :, own:] = texts[np.arange(rows)[:, None] // SIZE, answers]
    sampled = np.tile(np.arange(shape.tokens) < own, shape.turns)
    ids = ids.reshape(rows, width)
    if shape.steps:  # equally far apart, the last tokens of turns left out
        cuts = np.flatnonzero(sampled & np.roll(sampled, -1))
        places = np.linspace(0, len(cuts) - 1, shape.steps - shape.turns).astype(int)
        ids[:, cuts[places]] = TOKENIZER.encode(DELIMITER)
    tool = [[{"role": "tool", "content": f"state {answer}"} for answer in row] for row in answers.tolist()]
    said = {"role": "assistant", "content": "7+5=2;2-3=9"}
    output = {
        "completion_ids": torch.from_numpy(ids),
        "completion_mask": torch.ones(rows, width, dtype=torch.int64),
        "prompt_ids": torch.from_numpy(rng.choice(LETTERS, (shape.groups, 100)).repeat(SIZE, axis=0)),
        "prompt_mask": torch.ones(rows, 100, dtype=torch.int64),
        "advantages": torch.zeros(rows),
    }
    return ScoredRows(
        inputs=[{}] * rows,
        output=output,
        loss_mask=output["completion_mask"],
        prompts=["?"] * rows,
        completions=[[message for answer in row for message in (said, answer)] for row in tool],
        completion_ids=ids.tolist(),
        sampled=[sampled.astype(int).tolist()] * rows,
        rewards_per_func=torch.zeros(rows, 1),
        entropies=None,
        state_keys={},
        num_generations=SIZE,
        place=Place.of(0, rows, SIZE),
    )


@cache
def arguments(delimiter: str | None) -> TokenCreditConfig:
    """A real configuration, so that `batch_of` finds each argument that it reads."""
    return TokenCreditConfig("unused", step_delimiter=delimiter, use_cpu=True, bf16=False, report_to="none")


def batch(rows: ScoredRows, delimiter: str | None = None, key_func: Callable[[str], str] | None = None) -> Batch:
    """The batch of a trainer on one rank."""
    trainer = SimpleNamespace(
        args=arguments(delimiter),
        accelerator=None,
        credit_func=None,
        reads_observations=True,
        reads_columns=False,
        _is_vlm=False,
        model=SimpleNamespace(training=True),
        observation_key_func=key_func,
        reward_weights=torch.ones(1),
        rollout_func=None,
        step_rewards=None,
        scale_rewards="group",
        multi_objective_aggregation="sum_then_normalize",
        _tokenizer=TOKENIZER,
    )
    report = Report(0)
    made = batch_of(trainer, rows, report)
    assert report.cause is None
    return made


def hashed_from_the_start(made: Batch) -> int:
    """Number of states by a hash of all tokens before each step, as a simple implementation takes it."""
    ids, starts = made.completion_ids.numpy(), np.diff(made.steps.numpy(), axis=1, prepend=-1) > 0
    found = {hashlib.blake2b(ids[row, :start].tobytes()).digest() for row, start in np.argwhere(starts).tolist()}
    return len(found)


def rows(shape: Shape) -> list[tuple[str, str, str]]:
    given = conversations(shape)
    plain, keyed = (seconds(lambda f=f: batch(given, key_func=f)) for f in (None, str.upper))
    narrow, short = shape._replace(tokens=shape.tokens // 4), shape._replace(turns=shape.turns // 4)
    narrower, shorter = (seconds(lambda g=g: batch(g)) for g in map(conversations, (narrow, short)))
    lists = [*given.completion_ids, *given.sampled]
    tensors = seconds(lambda: [torch.tensor(row) for row in lists])
    few, many = (shape._replace(steps=n * shape.turns) for n in (4, 16))
    fewer, more = (seconds(lambda g=g: batch(g, DELIMITER)) for g in map(conversations, (few, many)))
    small = shape._replace(groups=1, steps=16 * shape.turns)
    cut = batch(conversations(small), DELIMITER)
    simple = seconds(lambda: hashed_from_the_start(cut), repeats=1)
    ours = seconds(lambda: batch(conversations(small), DELIMITER))
    return [
        (f"{shape}: the batch / TRL's tensors of ids and masks", f"{plain / tensors:.2f}", "at most 1"),
        ("... with an `observation_key_func` / without", f"{keyed / plain:.2f}", "at most 4"),
        (f"4 times the tokens: ... / {narrow}", f"{plain / narrower:.1f}", "at most 5"),
        (f"4 times the turns: ... / {short}", f"{plain / shorter:.1f}", "at most 5"),
        (f"4 times the steps: {many} / {few.steps} steps", f"{more / fewer:.1f}", "at most 4"),
        (f"{small}: all tokens hashed before each step / the batch", f"{simple / ours:.1f}", ""),
    ]


if __name__ == "__main__":
    quick = is_quick(__doc__, "tiny sizes, whose times mean nothing")
    shape = Shape(groups=2, turns=4, tokens=20) if quick else Shape()
    print_table("The batch of agents", RATIO, rows(shape))
