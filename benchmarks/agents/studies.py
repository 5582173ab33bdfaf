"""The studies: which methods learn in which world, and which learning rates are tried."""

from dataclasses import replace

from benchmarks.agents.worlds import ROOMS, TAXI, World
from benchmarks.learning.arms import Arm, Study
from benchmarks.learning.runs import Budget

LEARNING_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
BUDGET = Budget(15, 5)
METHODS = ("grpo", "prefix_baseline", "tempo", "gigpo", "hgpo")


def _arms(world: World) -> tuple[Arm, ...]:
    return tuple(Arm(method, world, method, tuned_as=method) for method in METHODS)


def _taxi() -> Study:
    """With another arm: GRPO at the rate of the others, because its own sweep chose half of that."""
    study = _study(TAXI, "Taxi, tasks of at most eleven calls")
    same = replace(study.arms[0], label="grpo, rate 1e-3", tuned_as="", learning_rate=1e-3)
    return replace(study, arms=(*study.arms, same))


def _study(world: World, title: str) -> Study:
    return Study(world.name, title, _arms(world), swept=True, rates=LEARNING_RATES, budget=BUDGET)


STUDIES = {study.name: study for study in (_study(ROOMS, "Nine rooms, a key and an exit"), _taxi())}
