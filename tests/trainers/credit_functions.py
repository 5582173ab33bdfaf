"""Credit functions of a user, good and bad, and one rank of a run with them.

As a module, MODEL FOLDER NAME [key=value ...], it trains with the function of that name and writes what the rank saw.
"""

import os
import re

import torch

from tempo_trl import Batch, Credit, SpanReward, TokenCreditConfig, TokenCreditTrainer

from . import agents
from .agents import scripted
from .one_rank import finish, parsed
from .recording import config, picky, questions, share_of_threes, weights

RANK = int(os.environ.get("RANK", "0"))


def grpo(batch: Batch) -> torch.Tensor:
    return batch.advantages


def spread(batch: Batch) -> torch.Tensor:
    return batch.advantages.nan_to_num(0.0)[:, None].expand(batch.completion_ids.shape)


def later_counts_more(batch: Batch) -> Credit:
    place = torch.arange(batch.completion_ids.shape[1]) / batch.lengths[:, None]
    counted = batch.counted.float()
    metrics = {"mine/length": ((batch.lengths * counted).sum().item(), counted.sum().item())}
    return Credit(spread(batch) * (0.5 + place), metrics=metrics)


def unread_outside_of_the_loss(batch: Batch) -> torch.Tensor:
    return torch.where(batch.loss_mask, spread(batch), torch.nan)


def one_column_short(batch: Batch) -> torch.Tensor:
    return spread(batch)[:, 1:]


def not_a_number(batch: Batch) -> torch.Tensor:
    advantages = spread(batch).clone()
    advantages[1, 2] = torch.nan
    return advantages


def infinite(batch: Batch) -> torch.Tensor:
    return spread(batch) / 0.0 if RANK == 0 else spread(batch)


def raises(batch: Batch) -> torch.Tensor:
    if int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK:  # one rank alone
        raise KeyError("segment")
    return spread(batch)


def cannot_be_sent(batch: Batch) -> Credit:
    return Credit(spread(batch), statistics=(lambda: None) if RANK == 0 else None)


def door_rewards(completions, **columns) -> list[list[float | None]]:
    """The room that each turn's door leads to, None for a turn that opens none."""
    return [
        [
            float(message["tool_calls"][0]["function"]["arguments"]["door"] % 2) if message.get("tool_calls") else None
            for message in completion
            if message["role"] == "assistant"
        ]
        for completion in completions
    ]


def logs_doors(completions, log_metric, log_extra, **columns) -> list[list[float | None]]:
    """The same, with the number of doors in the log and the first one in the table of completions."""
    doors = [
        [call["function"]["arguments"]["door"] for message in completion for call in message.get("tool_calls") or ()]
        for completion in completions
    ]
    log_metric("doors", sum(map(len, doors)) / len(doors))
    log_extra("first_door", [of_row[0] for of_row in doors])
    return door_rewards(completions)


def fails_on_the_last_rank(completions, **columns) -> list[list[float | None]]:
    if int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK:
        raise KeyError("door")
    return door_rewards(completions)


def length_of_steps(completions, **columns) -> list[list[float]]:
    """Length in characters of each step that ends with an `a`, or with the completion."""
    return [[float(len(step)) for step in re.findall("[^a]*a|[^a]+$", text)] for text in completions]


def halves(texts, completion_ids, **columns) -> list[list[SpanReward]]:
    """Criteria that depend on the tokens: one on the first half of the characters, one without a place."""
    return [
        [SpanReward("first half", ids[0] % 3, 0, (len(text) + 1) // 2), SpanReward("whole", sum(ids) % 2)]
        for text, ids in zip(texts, completion_ids, strict=True)
    ]


def by_rank(texts, **columns) -> list[list[SpanReward]]:
    """A criterion of all ranks, and one of each rank: its number is the reward, and rank 1 has up to two places."""
    return [
        [
            SpanReward("both", i % 2),
            *(SpanReward(f"rank{RANK}", RANK, t, t + 1) for t in range(min(len(text), RANK + 1))),
        ]
        for i, text in enumerate(texts)
    ]


def out_of_the_text_on_the_last_rank(texts, **columns) -> list[list[SpanReward]]:
    more = int(int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK)
    return [[SpanReward("field", 1.0, 0, len(text) + more)] for text in texts]


def with_trls_metric(batch: Batch) -> Credit:
    return Credit(batch.advantages, metrics={"reward": (1.0, 1.0)})


class RunningMean:
    """Centres credit on the mean length so far: a method with a memory, alike on all ranks."""

    def __init__(self):
        self.total, self.count, self.updates = 0.0, 0, 0

    def __call__(self, batch: Batch) -> Credit:
        seen = batch.lengths[batch.counted]
        scale = self.total / self.count if self.count else 1.0
        return Credit(spread(batch) * scale, statistics=(seen.sum().item(), len(seen)))

    def update(self, statistics: list) -> None:
        self.total += sum(total for total, _ in statistics)
        self.count += sum(count for _, count in statistics)
        self.updates += 1

    def state_dict(self) -> dict:
        return {"total": self.total, "count": self.count, "updates": self.updates}

    def load_state_dict(self, state: dict) -> None:
        vars(self).update(state)


class Watching:
    """Keeps every batch that it sees, and credits as GRPO does."""

    def __init__(self):
        self.batches: list[Batch] = []

    def __call__(self, batch: Batch) -> torch.Tensor:
        self.batches.append(batch)
        return batch.advantages


def main(model: str, folder: str, name: str, *options: str) -> None:
    overrides = parsed(options)
    function = globals()[name]
    function = function() if isinstance(function, type) else function
    steps = overrides.pop("steps", [])  # functions that reward each turn, by name, and paths of reward models
    spans = overrides.pop("spans", [])  # functions that reward places, by name
    rooms = overrides.pop("rooms", None)  # an agent's run, in which states come back: the name of its environment
    cls, keywords = TokenCreditTrainer, {}
    if rooms:
        cls, keywords = scripted(), {"environment_factory": getattr(agents, rooms)}
    if steps:
        keywords["step_reward_funcs"] = [globals().get(step, step) for step in steps]
    if spans:
        keywords["span_reward_funcs"] = [globals()[name] for name in spans]
    args = config(folder, TokenCreditConfig, **overrides)
    dataset = questions(conversational=bool(rooms)).add_column("difficulty", list(range(8)))
    rewards = [share_of_threes, picky]
    trainer = cls(
        model, rewards, args, dataset, eval_dataset=dataset.select(range(3)), credit_func=function, **keywords
    )
    seen = {"error": None}
    try:
        trainer.train()
    except (ValueError, RuntimeError) as error:
        seen["error"] = (type(error).__name__, str(error))
    seen |= {"weights": weights(trainer), "history": trainer.state.log_history}
    seen |= {"state": getattr(function, "state_dict", dict)()}
    seen |= {"batches": [vars(batch) for batch in getattr(function, "batches", [])]}
    finish(trainer, folder, seen)
