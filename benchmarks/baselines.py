"""How near to the true policy gradient each credit comes: `python -m benchmarks.baselines`, with `--quick` in seconds.

The instrument is exact. A policy over two tokens picks ten of them; every state has a logit of its own, so the true
gradient is a sum over 1,023 states. The reward is 1 if every decisive token is a 1, else 0. A batch is 16 groups of G
completions; its estimate, the mean over completions of advantage times score, is pooled by depth, as a network
generalises over states, and compared with the true gradient by their cosine. All credits see the same batches. The
adaptive baseline trains as a run does: on the covariance of earlier batches, of which one is drawn before the first
that counts.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import platform
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.credit import completions, seconds
from tempo_trl.credit import prefix_values, tempo_advantages
from tempo_trl.credit.advantages import prefix_tree
from tempo_trl.credit.prefix_baseline import prefix_baseline_advantages, prefix_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics

DEPTH, GROUPS, SEED = 10, 16, 0
BATCHES = {8: 62, 32: 25}
CREDITS = ("GRPO", "TEMPO c = 1", "prefix baseline, k = 2", "k = 8", "adaptive")


class Task(NamedTuple):
    """Columns of the decisive tokens, the probability of a 1 there (1/2 elsewhere), and the size of a group."""

    decisive: tuple[int, ...]
    probability: float
    num_generations: int

    def name(self) -> str:
        if len(self.decisive) == DEPTH:
            return f"all ten, {self.probability} each"
        return ", ".join(str(column + 1) for column in self.decisive)

    def chances(self) -> np.ndarray:
        """Probability of a 1 at each depth; all states of a depth are alike at the start. Shape `(DEPTH,)`."""
        return np.where(np.isin(np.arange(DEPTH), self.decisive), self.probability, 0.5)

    def success(self) -> float:
        return self.probability ** len(self.decisive)

    def true_gradient(self) -> np.ndarray:
        """Of the success rate by the states' logits, summed over the states of a depth: `(DEPTH,)`.

        A state that can still succeed gains V(1) - V(0) = V(1) by its decisive token, whose probability p moves by
        p (1 - p) with the logit. Reaching such a state, then p, then V(1) make the success rate; 1 - p is left over.
        """
        return np.where(np.isin(np.arange(DEPTH), self.decisive), self.success() * (1 - self.chances()), 0.0)


TASKS = (
    Task((0, 1), 0.6, 8),
    Task((0, 4, 8), 0.75, 8),
    Task((4, 5), 0.6, 8),
    Task((7, 8, 9), 0.75, 8),
    Task((9,), 0.4, 8),
    Task(tuple(range(10)), 0.93, 8),
    Task((0, 1), 0.6, 32),
    Task((0, 4, 8), 0.75, 32),
    Task((7, 8, 9), 0.75, 32),
)


class Batch(NamedTuple):
    """Completions (B, DEPTH) of one task, their lengths and rewards (B,)."""

    ids: torch.Tensor
    lengths: torch.Tensor
    rewards: torch.Tensor


def sampled(task: Task, rng: np.random.Generator) -> Batch:
    ids = torch.from_numpy(rng.random((GROUPS * task.num_generations, DEPTH)) < task.chances()).long()
    return Batch(ids, torch.full((len(ids),), DEPTH), ids[:, list(task.decisive)].amin(dim=1).double())


def credited(task: Task, batch: Batch, covariance: PrefixCovariance) -> list[torch.Tensor]:
    """The advantages of each of `CREDITS`, unscaled."""
    tempo = [
        tempo_advantages(*batch, task.num_generations, scale_rewards="none", td_coef=coefficient)
        for coefficient in (0.0, 1.0)
    ]
    baselines = [
        prefix_baseline_advantages(*batch, task.num_generations, scale_rewards="none", shrinkage=shrinkage)
        for shrinkage in (2.0, 8.0, covariance)
    ]
    return tempo + baselines


def learn(task: Task, batch: Batch, covariance: PrefixCovariance) -> None:
    covariance.update(pair_statistics(prefix_tree(*batch[:2], task.num_generations), batch.rewards))


def cosines(task: Task, batches: int) -> np.ndarray:
    """Cosine of each batch's estimate to the true gradient, by credit: `(batches, len(CREDITS))`."""
    rng, covariance, true = np.random.default_rng(SEED), PrefixCovariance(), task.true_gradient()
    learn(task, sampled(task, rng), covariance)
    result = np.empty((batches, len(CREDITS)))
    for k in range(batches):
        batch = sampled(task, rng)
        score = batch.ids.numpy() - task.chances()
        for column, advantages in enumerate(credited(task, batch, covariance)):
            estimate = (advantages.numpy() * score).mean(axis=0)
            result[k, column] = estimate @ true / np.linalg.norm(estimate) / np.linalg.norm(true)
        learn(task, batch, covariance)
    return result


def shown(cosine: np.ndarray) -> list[str]:
    """Mean and standard error of each credit's cosines."""
    means, errors = cosine.mean(axis=0), cosine.std(axis=0, ddof=1) / len(cosine) ** 0.5
    return [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]


def speed(groups: int, width: int) -> list[tuple[str, str]]:
    """Time of all baselines of a batch over that of its prefix values, in one run on the same tensors."""
    batch = completions(groups, 8, width)
    covariance = PrefixCovariance()
    covariance.update(pair_statistics(prefix_tree(*batch[:2], 8), batch[2]))
    values = seconds(lambda: prefix_values(*batch, 8), repeats=20)
    return [
        (name, f"{seconds(lambda: prefix_baselines(*batch, 8, shrinkage), repeats=20) / values:.1f}")  # noqa: B023
        for name, shrinkage in (("shrinkage 2", 2.0), ("adaptive", covariance))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--quick", action="store_true", help="three batches a task and a small tensor: does it run?")
    quick = parser.parse_args().quick

    table = Table(title="Cosine to the true gradient, mean ± standard error", caption=f"seed {SEED}")
    for column in ("decisive tokens at", "success", "G", "batches", *CREDITS):
        table.add_column(column, justify="right")
    for task in TASKS:
        batches = 3 if quick else BATCHES[task.num_generations]
        table.add_row(
            task.name(),
            f"{task.success():.2f}",
            str(task.num_generations),
            str(batches),
            *shown(cosines(task, batches)),
        )
    groups, width = (2, 512) if quick else (64, 1024)
    ratios = Table(
        title="The cost of a baseline", caption=f"{platform.machine()}, torch {torch.__version__}, one thread"
    )
    ratios.add_column("ratio")
    ratios.add_column("measured", justify="right")
    for name, ratio in speed(groups, width):
        ratios.add_row(f"{groups} x 8 x {width:,}: baselines, {name} / prefix values", ratio)
    console = Console(width=160)
    console.print(table, ratios)


if __name__ == "__main__":
    main()
