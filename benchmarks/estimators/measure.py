"""Measure many estimators on a task. Estimators with the same rollout get the same batches."""

from collections.abc import Callable, Hashable
from zlib import crc32

import numpy as np

from benchmarks.estimators.estimators import POOLED, Estimator
from benchmarks.estimators.metrics import Measured, cosines, gradients
from benchmarks.estimators.rollouts import Independent, Rollout, Sample
from benchmarks.estimators.task import Task, TokenTree

BUDGET = 1920  # tokens of a batch: 64 groups of 3 or 3 groups of 64 completions of ten tokens
SEED = 0
WARM_UP = POOLED  # batches before those that count, on which the adaptive baseline learns


def measure(
    task: Task,
    estimators: dict[str, Estimator],
    batches: int,
    budget: int = BUDGET,
    seed: int = SEED,
) -> dict[str, Measured]:
    """Every estimator on `batches` batches of `budget` tokens of a task, by its name."""
    tree, samples, result = task.tree(), {}, {}
    for name, (rollout, credit) in estimators.items():
        if rollout not in samples:
            samples[rollout] = sampled(tree, rollout, batches, seed, budget)
        sample = samples[rollout]
        estimates = gradients(tree, sample, credit(sample))[WARM_UP:]
        result[name] = Measured(estimates, cosines(estimates, tree.gradient), sample.tokens[WARM_UP:])
    return result


def measure_groups(
    task: Task, size: int, methods: dict[Hashable, Callable], batches: int, budget: int = BUDGET, seed: int = SEED
) -> dict[Hashable, Measured]:
    """[`measure`] for credits that all get the same independent completions, in groups of `size`."""
    estimators = {name: Estimator(Independent(size), credit) for name, credit in methods.items()}
    return measure(task, estimators, batches, budget, seed)


def sampled(tree: TokenTree, rollout: Rollout, batches: int, seed: int, budget: int = BUDGET) -> Sample:
    """The batches of a rollout, warm-up included: the same ones whatever else is measured beside them."""
    rng = np.random.default_rng([seed, crc32(repr(rollout).encode())])
    return rollout.sample(tree, budget, WARM_UP + batches, rng)
