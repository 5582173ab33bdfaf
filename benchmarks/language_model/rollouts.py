"""Re-rollouts of a policy on the task `instructions`: many continuations of the states of its own completions.

A state's true value is the mean reward of its continuations. Two disjoint halves of them have independent errors, so
products of the two are unbiased where squares would be too large.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from tempo_trl.data.instructions import generated_rows
from tempo_trl.demo.sampling import sampled
from tempo_trl.rewards import instruction_reward
from tempo_trl.runs.files import write_atomically

TEMPERATURE, MAX_TOKENS = 0.8, 40  # the recipes'
GROUP, ROLLOUTS = 8, 32
# Tokens before the states that are continued. They do not depend on how long a completion turns out to be: a baseline
# that knew it would be biased.
PLACES = (1, 2, 4, 8, 12, 16, 24)
TOKEN_ROLLOUTS = 48  # of a state after each token, in three parts
EACH_TOKEN = 2  # completions of a prompt with a state after each token
AT_ONCE = 256  # continuations sampled together, in about 3 GB of memory


@dataclass
class Rolled:
    """
    What was sampled for one prompt.

    Args:
        kind (`str`): Kind of the instruction.
        prompt_ids (`list[int]`): Token ids of the prompt.
        completion_ids (`list[list[int]]`): G completions, then `ROLLOUTS` others from the same prompt.
        rewards (`list[float]`): Their rewards.
        states (`list[list[list[float]]]`): Rewards of the continuations, by completion of the first G and by those
            of the [`PLACES`] at which it has not ended.
        tokens (`list[list[list[float]]]`): The same after each token but the last, of the first completions; empty
            for prompts without it.
    """

    kind: str
    prompt_ids: list[int]
    completion_ids: list[list[int]]
    rewards: list[float]
    states: list[list[list[float]]]
    tokens: list[list[list[float]]]


def places(length: int) -> list[int]:
    """The places at which a completion of `length` tokens has not ended."""
    return [place for place in PLACES if place < length]


class Player:
    """
    A policy that answers instructions, in bfloat16: where the processor has instructions for it, that takes a quarter
    of the time.

    Args:
        folder (`str`): Folder or Hub id of the policy.
    """

    def __init__(self, folder: str):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def prompt_ids(self, row: dict) -> list[int]:
        message = [{"role": "user", "content": row["instruction"]}]
        return self.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]

    def continued(self, prompt_ids: list[int], paths: Sequence[list[int]], n: int) -> list[list[list[int]]]:
        """Completions of a prompt that begin with each path, `n` for each."""
        found, size = [], max(1, AT_ONCE // n)
        for first in range(0, len(paths), size):
            some = paths[first : first + size]
            new = sampled(
                self.model,
                [prompt_ids + path for path in some],
                counts=[n] * len(some),
                limits=[MAX_TOKENS - len(path) for path in some],
                eos_token_ids=[self.tokenizer.eos_token_id],
                temperature=TEMPERATURE,
            )
            found += [[path + ids for ids in own] for path, own in zip(some, new, strict=True)]
        return found

    def rewards(self, row: dict, completion_ids: Sequence[list[int]]) -> list[float]:
        """Rewards of completions of an instruction."""
        texts, n = self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True), len(completion_ids)
        columns = {name: [row[name]] * n for name in ("kind", "words", "number")}
        return instruction_reward(texts, **columns, prompts=[row["instruction"]] * n)

    def values(self, row: dict, prompt_ids: list[int], paths: Sequence[list[int]], n: int) -> list[list[float]]:
        """Rewards of `n` continuations of each path."""
        # Long paths have little left to sample, and finish together.
        order = sorted(range(len(paths)), key=lambda index: len(paths[index]))
        found = self.continued(prompt_ids, [paths[index] for index in order], n)
        scored = {index: self.rewards(row, own) for index, own in zip(order, found, strict=True)}
        return [scored[index] for index in range(len(paths))]

    def rolled(self, row: dict, each_token: bool) -> Rolled:
        """Complete a prompt, and continue the states of its completions."""
        prompt_ids = self.prompt_ids(row)
        (completions,) = self.continued(prompt_ids, [[]], GROUP + ROLLOUTS)
        cuts = [ids[:place] for ids in completions[:GROUP] for place in places(len(ids))]
        states = iter(self.values(row, prompt_ids, cuts, ROLLOUTS))
        tokens = []
        for ids in completions[: EACH_TOKEN if each_token else 0]:
            paths = [ids[:place] for place in range(1, len(ids))]
            tokens.append(self.values(row, prompt_ids, paths, TOKEN_ROLLOUTS))
        by_completion = [[next(states) for _ in places(len(ids))] for ids in completions[:GROUP]]
        rewards = self.rewards(row, completions)
        return Rolled(row["kind"], prompt_ids, completions, rewards, by_completion, tokens)


def roll(policy: str, prompts: int, each_token: int, folder: Path) -> Iterator[Rolled]:
    """
    Roll out the first instructions of the task, a file for each in `folder`; those that have one are read.

    Args:
        policy (`str`): Folder or Hub id of the policy.
        prompts, each_token (`int`): Instructions, and those of them with states after each token.
        folder (`Path`): Where the files are kept.
    """
    player, rows = None, generated_rows("train", seed=1)[:prompts]  # other instructions than those trained on
    for index, row in enumerate(rows):
        path = folder / f"{index}.json"
        if not path.exists():
            player = player or Player(policy)
            set_seed(index)
            write_atomically(path, json.dumps(asdict(player.rolled(row, index < each_token))))
        yield Rolled(**json.loads(path.read_text()))


def taught(policy: str, prompts: int, path: Path) -> list[Rolled]:
    """Groups of other instructions, from which baselines with a memory learn: no states are continued."""
    if not path.exists():
        rows = generated_rows("train", seed=2)[:prompts]
        player, found = Player(policy), []
        for index, row in enumerate(rows):
            set_seed(10_000 + index)
            prompt_ids = player.prompt_ids(row)
            (completions,) = player.continued(prompt_ids, [[]], GROUP)
            found.append(Rolled(row["kind"], prompt_ids, completions, player.rewards(row, completions), [], []))
        write_atomically(path, json.dumps([asdict(rolled) for rolled in found]))
    return [Rolled(**rolled) for rolled in json.loads(path.read_text())]


def halves(rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of two disjoint halves of the last dimension."""
    middle = rewards.shape[-1] // 2
    return rewards[..., :middle].mean(axis=-1), rewards[..., middle:].mean(axis=-1)
