"""The cost of credit: `make bench`, or `python -m benchmarks.credit`.

Every figure is a ratio of two times of the same run on the same data, because absolute times depend on the machine.
The data are random tokens in groups of 7: 256 tokens shared by the whole group, 64 more shared by pairs, then
independent tokens, with lengths between 3/4 T and T.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import time
from functools import partial

import numpy as np
import torch

from benchmarks import timing
from benchmarks.timing import RATIO, print_table
from benchmarks.training_step import STEP, paired_ratio, share_of_a_step, skipped_ratio
from tempo_trl import Batch
from tempo_trl.credit import prefix_values, tempo_advantages
from tempo_trl.credit.spans import criteria_of
from tempo_trl.methods.span_credit import span_credit
from tempo_trl.runs.criteria import spans_of

STEM, PAIRED = 256, 64

seconds = partial(timing.seconds, clock=time.perf_counter)


def completions(groups: int, num_generations: int, width: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Random completions as (ids (B, T), lengths (B,), rewards (B,))."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 150_000, (groups, num_generations, width))
    ids[:, :, :STEM] = ids[:, :1, :STEM]
    odd = ids[:, 1::2]
    odd[:, :, : STEM + PAIRED] = ids[:, : 2 * odd.shape[1] : 2, : STEM + PAIRED]
    lengths = rng.integers(3 * width // 4, width + 1, groups * num_generations)
    rewards = rng.integers(0, 2, groups * num_generations).astype(np.float32)
    return torch.from_numpy(ids.reshape(-1, width)), torch.from_numpy(lengths), torch.from_numpy(rewards)


def walk_values(ids: torch.Tensor, lengths: torch.Tensor, rewards: torch.Tensor, num_generations: int) -> np.ndarray:
    """Prefix values by walking a dictionary of children token by token, as simple implementations do."""
    values = np.zeros((len(ids), ids.shape[1] + 1), dtype=np.float32)
    rows = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    scores = rewards.tolist()
    for start in range(0, len(rows), num_generations):
        group = range(start, start + num_generations)
        root = {"sum": sum(scores[i] for i in group), "count": num_generations}
        for i in group:
            node = root
            for token in rows[i]:
                node = node.setdefault(token, {"sum": 0.0, "count": 0})
                node["sum"] += scores[i]
                node["count"] += 1
        for i in group:
            node, path = root, [root["sum"] / root["count"]]
            for token in rows[i]:
                node = node[token]
                path.append(node["sum"] / node["count"])
            values[i, : len(path)] = path
            values[i, len(path) :] = path[-1]
    return values


def credit_seconds(groups: int, num_generations: int, width: int) -> float:
    batch = completions(groups, num_generations, width)
    return seconds(lambda: tempo_advantages(*batch, num_generations), repeats=20)


def span_seconds(of_each_prompt: bool) -> float:
    """Ten criteria per completion, of 64 x 8 x 1,024 tokens: of the same names, or of names of each prompt's own."""
    ids, lengths, _ = completions(64, 8, 1024)
    rng, size, names = np.random.default_rng(0), len(ids), range(10)
    starts = rng.integers(0, 700, (size, len(names))).tolist()
    judged = [
        {
            f"{row // 8}.{k}" if of_each_prompt else f"{k}": (k + row % 3, [(start, start + 8)])
            for k, start in zip(names, own, strict=True)
        }
        for row, own in enumerate(starts)
    ]
    criteria = criteria_of(judged, {name: 1.0 for found in judged for name in found}, most=1)
    turns = torch.where(torch.arange(ids.shape[1]) < lengths[:, None], 0, -1)
    batch = Batch(
        completion_ids=ids,
        lengths=lengths,
        rewards=criteria.mean_reward(),
        rewards_per_func=criteria.mean_reward()[:, None],
        advantages=torch.zeros(size),
        outcome=torch.zeros(size),
        num_generations=8,
        prompts=torch.arange(size) // 8,
        loss_mask=turns >= 0,
        turns=turns,
        steps=turns,
        counted=torch.ones(size, dtype=torch.bool),
        criteria=criteria,
    )
    return seconds(lambda: spans_of(criteria, span_credit(batch).criteria), repeats=5)


def rows() -> list[tuple[str, str, str]]:
    batch = completions(64, 7, 1024)
    np.testing.assert_allclose(prefix_values(*batch, 7).numpy(), walk_values(*batch, 7), rtol=1e-6)
    values = seconds(lambda: prefix_values(*batch, 7), repeats=50)
    advantages = credit_seconds(64, 7, 1024)
    walk = seconds(lambda: walk_values(*batch, 7), repeats=3)
    eights = completions(64, 8, 1024)
    read = seconds(lambda: eights[0].sum(), repeats=200)
    floor = seconds(lambda: tempo_advantages(*eights, 8), repeats=200) / read
    longer, larger = credit_seconds(64, 7, 16_384), credit_seconds(64, 56, 1024)
    return [
        ("64 x 7 x 1,024: Python walk / ours, prefix values", f"{walk / values:,.0f}", "at least 100"),
        (
            "64 x 7 x 1,024: Python walk / ours, to the advantages",
            f"{walk / advantages:,.0f}",
            "at least 100",
        ),
        ("16 times the tokens: 64 x 7 x 16,384 / 64 x 7 x 1,024", f"{longer / advantages:.1f}", "at most 20"),
        ("8 times the group: 64 x 56 x 1,024 / 64 x 7 x 1,024", f"{larger / advantages:.1f}", "at most 12"),
        ("64 x 8 x 1,024: advantages / reading the token tensor once", f"{floor:.0f}", "at most 20"),
        (
            "64 x 8 x 1,024, span credit: 640 names, ten of each prompt's own / ten names",
            f"{span_seconds(True) / span_seconds(False):.1f}",
            "at most 4",
        ),
        (f"a step of TEMPO / one of GRPO ({STEP})", f"{paired_ratio():.3f}", "at most 1.02"),
        (
            "an update with `skip_zero_advantages`, half of the groups flat / without",
            f"{skipped_ratio():.2f}",
            "at most 0.6",
        ),
        *(
            (f"share of such a step, processes: {ranks}", f"{100 * share_of_a_step(ranks):.3f} %", "")
            for ranks in (1, 2, 4)
        ),
    ]


if __name__ == "__main__":
    print_table("The cost of credit", RATIO, rows())
