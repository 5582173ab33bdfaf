"""One rank of the matrix: the same scripted completions on any number of ranks, case after case.

MODEL FOLDER [CASE ...], started by test_rank_matrix.py. Writes each case's advantages, weights, metrics, collectives.
"""

import os
import random
import re
from dataclasses import replace

import torch
import torch.distributed as dist

from tempo_trl import SpanCreditConfig, SpanCreditTrainer, SpanReward

from .one_rank import finish
from .recording import Recording, RecordingTrainer, config, questions, rolled_out, weights

ROWS, EVAL_ROWS, GROUP_EVAL = 24, 12, 3  # of all ranks together, in training and in evaluation
EVAL_PROMPTS = 5  # 15 completions: the second batch is partial
OURS = re.compile("tempo/|spans/")

# Groups of 3 lie inside every rank, groups of 8 are cut unevenly by 4 ranks, a group of 12 is half the batch.
CASES = {
    "groups of 3": {"num_generations": 3},
    "groups of 8": {"num_generations": 8},
    "groups of 12": {"num_generations": 12},
    "lengths that differ much between prompts": {"num_generations": 8, "style": "ragged"},
    "only flat groups on the first ranks": {"num_generations": 8, "style": "flat"},
    "the same, and left out": {"num_generations": 8, "style": "flat", "skip_zero_advantages": True},
    "no branch at all": {"num_generations": 8, "style": "same"},
    "unscorable completions on the first ranks": {"num_generations": 8, "style": "unscorable"},
    "tokens of the environment": {"num_generations": 8, "style": "environment"},
    "tokens that the credit of some prompts leaves out": {"num_generations": 12, "style": "dropped"},
    "batch scaling, two updates a generation": {"num_generations": 4, "scale_rewards": "batch", "num_iterations": 2},
    "truncated completions masked": {"num_generations": 8, "mask_truncated_completions": True},
    "beta and sequence-level importance": {
        "num_generations": 8,
        "beta": 0.1,
        "importance_sampling_level": "sequence",
        "num_iterations": 2,
    },
    "rewards with a place": {"num_generations": 8, "spans": True, "trace_lambda": 0.5},
    "the same, scaled by the batch, beside a reward": {
        "num_generations": 12,
        "spans": True,
        "style": "unscorable",
        "scale_rewards": "batch",
    },
    "criteria of single prompts only": {"num_generations": 8, "spans": True, "style": "flat"},
}


def completion(prompt: str, place: int, style: str) -> list[int]:
    """Token ids of the completion at a place of its prompt's group: a tree of a few branches."""
    rng = random.Random(f"{prompt} {place // 4}")  # fours share a stem
    number = int(prompt.split()[2])
    if style == "same":
        return [40, 41, 42]
    longest = 40 if style == "ragged" and number % 2 else 3
    stem = [rng.randrange(30, 40) for _ in range(longest)]
    return [*stem, *(30 + place % (1 + t) for t in range(2 + place % 3)), 2][: 1 + place % 7 + longest]


def scripted(style: str):
    def rollout(prompts, trainer):
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        first = trainer.accelerator.process_index * len(prompts)
        ids = [completion(prompt, (first + i) % size, style) for i, prompt in enumerate(prompts)]
        mask = {"env_mask": [[int(t % 3 != 1) for t in range(len(row))] for row in ids]}
        return rolled_out(prompts, trainer, ids, **(mask if style == "environment" else {}))

    return rollout


def reward_of(style: str):
    def reward(prompts, completion_ids, **columns):
        numbers = [int(prompt.split()[2]) for prompt in prompts]
        scores = [(sum(ids) % 5) / 4 for ids in completion_ids]
        if style == "flat":
            scores = [0.7 if number < 4 else score for number, score in zip(numbers, scores, strict=True)]
        if style == "unscorable":
            drop = [number < 4 and sum(ids) % 2 for number, ids in zip(numbers, completion_ids, strict=True)]
            scores = [None if dropped else score for dropped, score in zip(drop, scores, strict=True)]
        return scores

    return reward


def judge(style: str):
    """Criteria with one place, with up to two, and without any; others for each half of the prompts."""

    def judged(texts, prompts, completion_ids, **columns):
        found = []
        for text, prompt, ids in zip(texts, prompts, completion_ids, strict=True):
            number, middle, end = int(prompt.split()[2]), (len(text) + 1) // 2, len(text)
            spans = [SpanReward("beginning", ids[0] % 3 / 2, 0, middle)]
            if number % 2 or style == "plain":
                spans += [
                    SpanReward("end", sum(ids) % 3 / 2, *place) for place in ((0, 1), (end - 1, end))[number % 2 :]
                ]
            else:
                spans += [SpanReward("whole", None if len(ids) % 4 == 0 else sum(ids) % 5 / 4)]
            found.append([] if style == "flat" and number < 4 else spans)
        return found

    return judged


def record_collectives() -> list[str]:
    """The names of this process's collectives from now on, in order."""
    calls = []

    def recording(name, function):
        def call(*args, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        return call

    for name in ("all_gather", "all_gather_into_tensor", "all_reduce", "all_gather_object", "broadcast", "barrier"):
        setattr(dist, name, recording(name, getattr(dist, name)))
    return calls


class Dropping(RecordingTrainer):
    """Takes tokens of some prompts out of the loss, which the last ranks lack: they return no mask."""

    reads_columns = True

    def credit(self, batch):
        some = torch.tensor([int(prompt.split()[2]) < 4 for prompt in batch.columns["prompt"]])
        mask = batch.loss_mask & ~(some[:, None] & (batch.completion_ids % 3 == 0))
        return replace(super().credit(batch), loss_mask=mask if some.any() else None)


class RecordingSpans(Recording, SpanCreditTrainer):
    pass


def trainer_with_spans(model: str, style: str, *arguments, **keywords) -> RecordingSpans:
    """Rewards with a place, alone except in one style."""
    rewards = reward_of(style) if style == "unscorable" else None
    return RecordingSpans(model, rewards, *arguments, span_reward_funcs=judge(style), **keywords)


def run_case(
    model: str, folder: str, calls: list[str], style: str = "plain", spans: bool = False, **overrides
) -> dict:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    evaluation = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": GROUP_EVAL}
    geometry = {"per_device_train_batch_size": ROWS // ranks, "per_device_eval_batch_size": EVAL_ROWS // ranks}
    # SGD is linear in the gradient: Adam would blow up the rounding of sums taken in another order.
    steps = {"max_steps": 2, "max_completion_length": 48, "optim": "sgd", "learning_rate": 0.1}
    method = {"cls": SpanCreditConfig} if spans else {}
    args = config(folder, **method, **steps, **evaluation, **geometry, **overrides)
    del calls[:]
    arguments = args, questions(8)
    keywords = {"eval_dataset": questions(EVAL_PROMPTS), "rollout_func": scripted(style)}
    if spans:
        trainer = trainer_with_spans(model, style, *arguments, **keywords)
    else:
        cls = Dropping if style == "dropped" else RecordingTrainer
        trainer = cls(model, reward_of(style), *arguments, **keywords)
    trainer.train()
    return {
        "batches": [(batch.training, batch.completion_ids, batch.output["advantages"]) for batch in trainer.batches],
        "weights": weights(trainer),
        "metrics": [{k: v for k, v in e.items() if OURS.search(k)} for e in trainer.state.log_history],
        "table": list(trainer._logs["advantages"]),
        "collectives": list(calls),
        "trainer": trainer,
    }


def main(model: str, folder: str, *names: str) -> None:
    calls = record_collectives()
    results = {name: run_case(model, folder, calls, **CASES[name]) for name in names or CASES}
    trainers = [result.pop("trainer") for result in results.values()]
    finish(trainers[-1], folder, results)
