"""The studies: which arms each compares, on which task, and which learning rates are tried."""

from dataclasses import replace

from benchmarks.learning.arms import LEARNING_RATES, Arm, Study
from benchmarks.learning.chain import Chain
from benchmarks.learning.plan import Plan
from benchmarks.learning.runs import Budget
from benchmarks.learning.tasks import Task

PLAN_RATES = (1e-3, 2e-3, 4e-3, 8e-3)  # of a model of an eighth of the size, and of one decision a completion
FLOOR = (("advantage_floor", -0.1),)
FLOOR_ALONE = (("trace_lambda", 1e-6),)  # of GRPO-lambda, which at 0 is GRPO without a floor
CREDITS = ("grpo", "tempo", "prefix_baseline")  # of independent completions

ALL = {
    "grpo": ("grpo", ()),
    "tempo": ("tempo", ()),
    "prefix_baseline": ("prefix_baseline", ()),
    "hepo": ("hepo", ()),
    "grpo_lambda": ("grpo_lambda", ()),
    "ppo": ("ppo", ()),
    "treerpo": ("treerpo", ()),
    "treerpo_entropy": ("treerpo_entropy", ()),
    "tempo, entropy trees": ("tempo", (("rollout", "entropy"),)),
    "tempo, fixed trees": ("tempo", (("rollout", "fixed"),)),
}


def _arms(task: Task, labels=tuple(ALL)) -> tuple[Arm, ...]:
    return tuple(Arm(label, task, *ALL[label], tuned_as=label) for label in labels)


def _group_size() -> Study:
    """The paper's sizes, and twice the recipes'."""
    arms = (
        replace(arm, changes=(("num_generations", size),), panel=f"G = {size}")
        for size in (3, 5, 7, 9, 16)
        for arm in _arms(Chain(), CREDITS)
    )
    return Study("group_size", "Group size at equal generated tokens", tuple(arms), figure="levels")


def _floor() -> Study:
    """GRPO-lambda's floor under other credit, every arm at its own rate: a lead that is the rate's disappears."""
    arms = {label: ALL[label] for label in CREDITS} | {
        "grpo, floor": ("grpo_lambda", FLOOR_ALONE),
        "tempo, floor": ("tempo", FLOOR),
        "prefix_baseline, floor": ("prefix_baseline", FLOOR),
    }
    return Study(
        "floor",
        "A floor under negative advantages, each arm at its own rate",
        tuple(Arm(label, Chain(), *arm, tuned_as=label) for label, arm in arms.items()),
        figure="dots",
        swept=True,
        rates=tuple(2 * rate for rate in LEARNING_RATES),  # the floor's best was the highest that was tried
        sweep_seeds=(100, 101),  # a rate is chosen by more than one run
    )


STUDIES = {
    study.name: study
    for study in (
        Study("chain", "Chain of five steps: every step may slip", _arms(Chain()), swept=True),
        Study(
            "plan",
            "Plan: one early decision, noisy execution",
            _arms(Plan()),
            swept=True,
            rates=PLAN_RATES,
            budget=Budget(20, 10),  # one character in thirteen is to be learned
        ),
        _group_size(),
        _floor(),
    )
}
