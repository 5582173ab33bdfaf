"""The studies: which arms each compares, on which task, and which learning rates are tried."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.learning.arms import LEARNING_RATES, Arm, Study
from benchmarks.learning.chain import Chain, slip_rate_for
from benchmarks.learning.plan import Plan
from benchmarks.learning.runs import Budget
from benchmarks.learning.tasks import Task

PLAN_RATES = (1e-3, 2e-3, 4e-3, 8e-3)  # of a model of an eighth of the size, and of one decision a completion
START_ACCURACY = 0.42
PLAN_BUDGET = Budget(20, 10)
ENTROPY, FIXED = (("rollout", "entropy"),), (("rollout", "fixed"),)
FLOOR = (("advantage_floor", -0.1),)
FLOOR_ALONE = (("trace_lambda", 1e-6),)  # of GRPO-lambda, which at 0 is GRPO without a floor
TWO_SEEDS = (100, 101)  # of a sweep that chooses a rate by more than one run
WITH_FUNCTIONS = ("grpo", "tempo", "token_credit")  # what --quick keeps of a study with credit functions
SMALL_BATCH = (("per_device_train_batch_size", 16),)  # 32 completions a generation instead of 256

ALL = {
    "grpo": ("grpo", ()),
    "tempo": ("tempo", ()),
    "prefix_baseline": ("prefix_baseline", ()),
    "hepo": ("hepo", ()),
    "grpo_lambda": ("grpo_lambda", ()),
    "ppo": ("ppo", ()),
    "treerpo": ("treerpo", ()),
    "treerpo_entropy": ("treerpo_entropy", ()),
    "tempo, entropy trees": ("tempo", ENTROPY),
    "tempo, fixed trees": ("tempo", FIXED),
}
CREDITS = ("grpo", "tempo", "prefix_baseline", "grpo_lambda")  # of independent completions: trees cost thrice the time


def _arms(task: Task, labels=tuple(ALL), panel: str = "") -> tuple[Arm, ...]:
    return tuple(Arm(label, task, *ALL[label], panel=panel, tuned_as=label) for label in labels)


def _at_one_rate(task: Task, panel: str) -> tuple[Arm, ...]:
    """`CREDITS`, and GRPO also at the rate of GRPO-lambda, which is twice its own: a lead may be the rate's."""
    own = _arms(task, CREDITS, panel)
    return *own, replace(own[0], label="grpo, rate 8e-4", learning_rate=8e-4)


def _plan() -> Study:
    """One character in thirteen is to be learned: longer runs, higher rates."""
    title = "Plan: one early decision, noisy execution"
    return Study("plan", title, _arms(Plan()), swept=True, rates=PLAN_RATES, budget=PLAN_BUDGET)


def _wording() -> Study:
    panels = {1: "one phrase", 2: "two phrases", 4: "four phrases"}
    arms = (arm for n, panel in panels.items() for arm in _arms(Chain(wording=n), CREDITS, panel))
    return Study("wording", "Irrelevant wording: phrases that may open a step", tuple(arms))


def _lengths() -> dict[int, Chain]:
    """All start at the accuracy of the base chain: what differs is the length, not the difficulty."""
    base = Chain()
    return {n: base if n == base.steps else Chain(n, slip_rate_for(START_ACCURACY, n)) for n in (3, 5, 10, 20)}


def _carried() -> Study:
    arms = (arm for n, task in _lengths().items() for arm in _at_one_rate(task, f"{n} steps"))
    title = "A learning rate carried over from five steps to other lengths"
    return Study("carried", title, tuple(arms))


def _length() -> Study:
    """Each length has its own sweep, around rates that fall with it: what is best for five steps breaks ten."""

    def tuned(arm: Arm, steps: int, share: float) -> Arm:
        return replace(arm, tuned_as=f"{arm.label}, {steps} steps", rates=tuple(share * x for x in LEARNING_RATES))

    shares = {3: 1.0, 5: 1.0, 10: 0.5, 20: 0.25}
    arms = (tuned(arm, n, shares[n]) for n, task in _lengths().items() for arm in _arms(task, CREDITS, f"{n} steps"))
    title = "Chain length, each method at its own best rate for it"
    return Study("length", title, tuple(arms), swept=True)


def _group_size() -> Study:
    def changed(arm: Arm, size: int) -> Arm:
        return Arm(arm.label, arm.task, arm.method, (("num_generations", size),), f"G = {size}", arm.tuned_as)

    sizes, labels = (3, 5, 7, 9, 16), ("grpo", "tempo", "prefix_baseline")  # the paper's, and twice the recipes'
    arms = (changed(arm, size) for size in sizes for arm in _arms(Chain(), labels))
    return Study("group_size", "Group size at equal generated tokens", tuple(arms), figure="levels")


def _variants(method: str, task: Task, variants: dict[str, tuple]) -> tuple[Arm, ...]:
    named = (Arm(label, task, method, changes, tuned_as=method) for label, changes in variants.items())
    return _arms(task, ("grpo",)) + tuple(named)


def _lambda() -> Study:
    """Lambda 0 is GRPO at this rate; the method adds a trace and a floor under advantages: each alone, too."""
    variants = {
        "lambda 0, no floor": (("trace_lambda", 0.0),),
        "floor alone": FLOOR_ALONE,
        "trace alone, 0.99": (("advantage_floor", None),),
    }
    for style in ("recent", "both"):
        for value in (0.9, 0.98, 0.99):
            variants[f"lambda {value}, {style}"] = (("trace_lambda", value), ("trace_style", style))
    arms = _variants("grpo_lambda", Chain(), variants)
    return Study("lambda", "GRPO-lambda: trace length and style", arms, figure="dots")


def _treerpo() -> Study:
    """Trees of eight, nine and sixteen leaves; the budget is the same for all."""
    sizes = ((8, 1), (2, 3), (3, 2), (16, 1), (4, 2), (2, 4))
    variants = {
        f"{n} ** {depth}": (("num_generations", n**depth), ("tree_children", n), ("tree_depth", depth))
        for n, depth in sizes
    }
    arms = _variants("treerpo", Chain(), variants)
    return Study("treerpo", "TreeRPO: children ** depth", arms, figure="dots")


def _credit(function: str) -> tuple[str, tuple]:
    """Method and changes of an arm with a credit function of this package."""
    return "token_credit", (("credit_func", f"benchmarks.learning.{function}"),)


def _ceiling_arms(name: str, task: Task, rates: tuple[float, ...], small: bool) -> Iterator[Arm]:
    """An arm for each method and oracle at one batch size, each with its own sweep.

    Rates of small batches are half of those of large ones, and GRPO-lambda's twice those of the others, because its
    best rate was the highest that was tried.
    """
    panel, kind = f"{name}, {32 if small else 256} completions", type(task).__name__.lower()
    methods = {label: (label, ()) for label in CREDITS}
    oracles = {f"oracle_{use}": _credit(f"oracles.{kind}_{use}") for use in ("td", "baseline")}
    for label, (method, changes) in (methods | oracles).items():
        share = (0.5 if small else 1.0) * (2.0 if label == "grpo_lambda" else 1.0)
        own = tuple(share * rate for rate in rates)
        yield Arm(label, task, method, changes + SMALL_BATCH * small, panel, f"{label}, {panel}", rates=own)


def _ceiling(name: str, task: Task, rates: tuple[float, ...], budget: Budget) -> Study:
    """What perfect credit gains over GRPO on one task at two batch sizes, and which share of it the methods gain."""
    arms = (arm for small in (False, True) for arm in _ceiling_arms(name, task, rates, small))
    title = f"What perfect credit gains on the {name}, and what the methods gain"
    options = {"swept": True, "sweep_seeds": TWO_SEEDS, "quick_methods": WITH_FUNCTIONS, "budget": budget}
    return Study(f"ceiling_{name}", title, tuple(arms), figure="ceiling", **options)


def _floor() -> Study:
    """GRPO-lambda's floor under other credit, every arm at its own rate: a lead that is the rate's disappears."""
    arms = {label: ALL[label] for label in ("grpo", "tempo", "prefix_baseline")} | {
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
        sweep_seeds=TWO_SEEDS,
    )


STUDIES = {
    study.name: study
    for study in (
        Study("chain", "Chain of five steps: every step may slip", _arms(Chain()), swept=True),
        _plan(),
        _wording(),
        _group_size(),
        _lambda(),
        _treerpo(),
        _carried(),
        _length(),
        _ceiling("chain", Chain(), LEARNING_RATES, Budget()),
        _ceiling("plan", Plan(), PLAN_RATES, PLAN_BUDGET),
        _ceiling("wording", Chain(wording=4), LEARNING_RATES, Budget()),
        _floor(),
    )
}
