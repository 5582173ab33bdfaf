"""Teach a tiny policy to play a world imperfectly, by imitation. Recreate the start of the rooms in two minutes:

    python -m benchmarks.agents.warm_start [--output benchmarks/tasks/rooms_start] [--seed 0]

Good play comes first, because what a good call depends on is faint in bad play. Fewer lessons of worse play follow,
which leave the policy room to improve.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.agents.policy import DONE, agent_policy_config, word_tokenizer
from benchmarks.learning.warm_start import CARD_HEAD, supervised, write_policy
from benchmarks.tasks.rooms import HELD_OUT, START, TURNS, WORDS, Rooms, draw_tasks, problems, room_reward
from tempo_trl.runs.statistics import wilson

FIRST_SKILL, SKILL = 0.85, 0.4
FIRST_STEPS, LATER_STEPS, BATCH_SIZE = 800, 150, 32
FIRST_RATE, LATER_RATE = 4e-3, 1e-3
EPISODES = 4000

_CARD = """\
# Starting policy of the agents' demonstration

A Qwen3 of {parameters:,} parameters, one word a token, that calls the tools of `benchmarks.tasks.rooms.Rooms`. It has
learned from play in which a call is the best one with probability {skill} and any call otherwise. Stored in float16,
declared float32: it loads in float32 unless told otherwise.

Made by `python -m benchmarks.agents.warm_start --seed {seed}` with torch {torch} and transformers {transformers}.
The same seed gives the same weights on one machine at one number of threads.

Measured on {n} held-out tasks, one completion each, at temperature 1:

| | |
|---|---|
| tasks solved | {solved:.3f} (95% Wilson interval {low:.3f} to {high:.3f}) |
| turns that are a call of a tool with its arguments, or `done` | {valid:.4f} |
"""

Lesson = tuple[list[int], list[bool]]  # ids of an episode, and which of them the policy writes


def taught_policy(
    tokenizer: PreTrainedTokenizerFast,
    make: Callable,
    draw: Callable[[int, random.Random], list[dict]],
    seed: int,
    skill: float = SKILL,
    steps: tuple[int, int] = (FIRST_STEPS, LATER_STEPS),
) -> Qwen3ForCausalLM:
    """
    A policy that plays as well as it was taught, trained from random weights.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerFast`]):
            Tokenizer with the words of the world.
        make (`Callable`):
            Makes an environment from the number of its row. Beside TRL's methods it has `_best_call` and `_calls`, as
            [`~benchmarks.tasks.rooms.Rooms`] has.
        draw (`Callable`):
            Draws the dataset's rows of as many tasks as asked for.
        seed (`int`):
            Drives weights, tasks and play. Equal arguments give equal weights on one machine at one number of threads.
        skill (`float`, *optional*, defaults to `0.4`):
            Probability that a call of the last lessons is the best one. The others are drawn from all calls.
        steps (`tuple[int, int]`, *optional*):
            Batches of good play and of play with `skill`.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(agent_policy_config(tokenizer))
    for own, n_batches, rate in zip((FIRST_SKILL, skill), steps, (FIRST_RATE, LATER_RATE), strict=True):
        taught = lessons(tokenizer, make, draw(min(EPISODES, n_batches * BATCH_SIZE), rng), rng, own)
        batches = lesson_batches(taught, tokenizer.pad_token_id, rng, n_batches, BATCH_SIZE)
        supervised(model.train(), batches, n_batches, rate)
    return model


def played(environment, row: dict, rng: random.Random, skill: float) -> list[dict]:
    """The messages of one episode of imperfect play: each call is the best one with probability `skill`, else any."""
    prompt = row["prompt"]
    messages = [{**prompt[-1], "content": prompt[-1]["content"] + environment.reset(**row)}]
    while best := environment._best_call():
        name, arguments = best if rng.random() < skill else rng.choice(environment._calls())
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": name, "content": getattr(environment, name)(**arguments)})
    return [*messages, {"role": "assistant", "content": DONE}]


def lessons(
    tokenizer: PreTrainedTokenizerFast, make: Callable, rows: Sequence[dict], rng: random.Random, skill: float
) -> list[Lesson]:
    """An episode of imperfect play per row, as token ids."""
    taught, environment = [], make(0)
    for environment._row, row in enumerate(rows):  # as one each would be numbered; gymnasium's take long to make
        messages = played(environment, row, rng, skill)
        encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        taught.append((encoded["input_ids"], [bool(own) for own in encoded["assistant_masks"]]))
    return taught


def lesson_batches(
    taught: Sequence[Lesson], pad: int, rng: random.Random, n_batches: int, batch_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """`n_batches` of `input_ids` and `labels`, each int64 (batch_size, T), padded on the right."""
    for _ in range(n_batches):
        ids, own = zip(*rng.choices(taught, k=batch_size), strict=True)
        input_ids = pad_sequence([torch.tensor(row) for row in ids], batch_first=True, padding_value=pad)
        is_taught = pad_sequence([torch.tensor(row) for row in own], batch_first=True)  # padding is not
        yield input_ids, input_ids.where(is_taught, -100)


def solved_and_valid(folder: Path, n: int = HELD_OUT) -> tuple[float, float]:
    """Share of held-out tasks that the policy in `folder` solves, and share of its turns that are valid."""
    from trl import GRPOConfig, GRPOTrainer

    turns = []

    def reward(completions, environments, **columns):
        turns.extend(message for messages in completions for message in messages if message["role"] == "assistant")
        return room_reward(completions, environments)

    with TemporaryDirectory() as output:
        args = GRPOConfig(
            output,
            max_completion_length=160,
            max_tool_calling_iterations=TURNS,
            num_generations_eval=1,
            per_device_eval_batch_size=n,
            use_cpu=True,
            bf16=False,
            report_to="none",
            disable_tqdm=True,
        )
        tasks = problems(n, seed=0, split="test")
        trainer = GRPOTrainer(str(folder), reward, args, tasks, tasks, environment_factory=Rooms)
        return trainer.evaluate()["eval_reward"], sum(map(is_valid, turns)) / len(turns)


def is_valid(message: dict) -> bool:
    """Whether a turn is one call of a tool of the rooms with its arguments, or the text that ends an episode."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    if not calls:
        return message["content"] == DONE
    expected = {name: set(arguments) for name, arguments in Rooms(0)._calls()}
    return len(calls) == 1 and expected.get(calls[0]["name"]) == set(calls[0]["arguments"])


def write_card(folder: Path, seed: int) -> str:
    """Measure the policy in `folder`, and write and return its README.md."""
    solved, valid = solved_and_valid(folder)
    low, high = wilson(solved, HELD_OUT)
    card = CARD_HEAD + _CARD.format(
        parameters=Qwen3ForCausalLM.from_pretrained(folder).num_parameters(),
        skill=SKILL,
        seed=seed,
        torch=version("torch"),
        transformers=version("transformers"),
        n=HELD_OUT,
        solved=solved,
        low=low,
        high=high,
        valid=valid,
    )
    (folder / "README.md").write_text(card)
    return card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=START, help="folder; default: the shipped one")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, tasks and play; default: 0")
    arguments = parser.parse_args()
    tokenizer = word_tokenizer(WORDS)
    write_policy(taught_policy(tokenizer, Rooms, draw_tasks, arguments.seed), tokenizer, arguments.output)
    print(write_card(arguments.output, arguments.seed))


if __name__ == "__main__":
    main()
