"""Benefit and cost of a prefix baseline: `python -m benchmarks.baselines`, with `--quick` in seconds.

The benefit is measured with `benchmarks/estimators`, on ten tokens of a vocabulary of two: the cosine between a
batch's estimate and the true policy gradient, pooled by depth. A batch is 16 groups of G completions. The cost is the
time for all baselines of a batch relative to that for its prefix values.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from benchmarks.credit import completions, seconds
from benchmarks.estimators.estimators import adaptive, prefix_baseline, tempo
from benchmarks.estimators.measure import measure_groups
from benchmarks.estimators.task import Task
from benchmarks.timing import RATIO, is_quick, print_table
from tempo_trl.credit import prefix_values
from tempo_trl.credit.prefix_baseline import prefix_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree

GROUPS, SEED = 16, 0
BATCHES = {8: 62, 32: 25}
CREDITS = {
    "GRPO": tempo(0.0),
    "TEMPO c = 1": tempo(1.0),
    "prefix baseline, k = 2": prefix_baseline(2.0),
    "k = 8": prefix_baseline(8.0),
    "adaptive": adaptive(),
}


def task(decisive: tuple[int, ...], probability: float) -> Task:
    """A task in which all decisive tokens must be right, each of which is right with this probability."""
    return Task(decisive, success=probability ** len(decisive))


TASKS = (
    (task((0, 1), 0.6), 8),
    (task((0, 4, 8), 0.75), 8),
    (task((4, 5), 0.6), 8),
    (task((7, 8, 9), 0.75), 8),
    (task((9,), 0.4), 8),
    (task(tuple(range(10)), 0.93), 8),
    (task((0, 1), 0.6), 32),
    (task((0, 4, 8), 0.75), 32),
    (task((7, 8, 9), 0.75), 32),
)


def cosines(of: Task, num_generations: int, batches: int) -> np.ndarray:
    """Cosine of each batch's estimate to the true gradient, by credit: `(batches, len(CREDITS))`."""
    budget = GROUPS * num_generations * of.depth
    measured = measure_groups(of, num_generations, CREDITS, batches, budget, SEED)
    return np.stack([m.cosine for m in measured.values()], axis=1)


def shown(cosine: np.ndarray) -> list[str]:
    """Mean and standard error of each credit's cosines."""
    means, errors = cosine.mean(axis=0), cosine.std(axis=0, ddof=1) / len(cosine) ** 0.5
    return [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]


def speed(groups: int, width: int) -> list[tuple[str, str]]:
    """Time for all baselines of a batch relative to that for its prefix values, in one run on the same tensors."""
    batch = completions(groups, 8, width)
    covariance = PrefixCovariance()
    covariance.update(pair_statistics(prefix_tree(*batch[:2], 8), batch[2]))
    values = seconds(lambda: prefix_values(*batch, 8), repeats=20)
    return [
        (name, f"{seconds(lambda: prefix_baselines(*batch, 8, shrinkage), repeats=20) / values:.1f}")  # noqa: B023
        for name, shrinkage in (("shrinkage 2", 2.0), ("adaptive", covariance))
    ]


def main() -> None:
    quick = is_quick(__doc__, "only check that it runs: small sizes")
    headings = (Column(name, justify="right") for name in ("decisive tokens at", "success", "G", "batches", *CREDITS))
    table = Table(*headings, title="Cosine to the true gradient, mean ± standard error", caption=f"seed {SEED}")
    for of, num_generations in TASKS:
        batches = 3 if quick else BATCHES[num_generations]
        figures = shown(cosines(of, num_generations, batches))
        table.add_row(of.name, f"{of.success:.2f}", str(num_generations), str(batches), *figures)
    groups, width = (2, 512) if quick else (64, 1024)
    Console(width=160).print(table)
    ratios = (
        (f"{groups} x 8 x {width:,}: baselines, {name} / prefix values", of) for name, of in speed(groups, width)
    )
    print_table("The cost of a baseline", RATIO[:2], ratios)


if __name__ == "__main__":
    main()
