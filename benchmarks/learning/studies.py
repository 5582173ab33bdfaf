"""The studies: which arms each compares, on which task, and which learning rates are tried."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from benchmarks.learning.chain import Chain, slip_rate_for
from benchmarks.learning.plan import Plan
from benchmarks.learning.runs import Budget
from benchmarks.learning.tasks import Task

LEARNING_RATES = (1e-4, 2e-4, 4e-4, 8e-4)
PLAN_RATES = (1e-3, 2e-3, 4e-3, 8e-3)  # of a model of an eighth of the size, and of one decision a completion
SWEEP_SEEDS = (100,)  # never those of the final runs: what chose a rate does not report it
START_ACCURACY = 0.42
ENTROPY, FIXED = (("rollout", "entropy"),), (("rollout", "fixed"),)


@dataclass(frozen=True)
class Arm:
    """
    Args:
        label (`str`): What the figure calls it. An arm called `grpo` is its panel's baseline.
        task (`Task`): What it learns.
        method (`str`): A method of `tempo_trl.launch.train`.
        changes (`tuple` of pairs): Fields that differ from the method's recipe.
        panel (`str`): Which panel of the figure it is in.
        tuned_as (`str`): Name of the sweep that chose its learning rate: the label of an arm of study chain or plan,
            or another of its own study's.
        learning_rate (`float`, *optional*): Instead of what that sweep chose.
        rates (`tuple[float, ...]`, *optional*): Learning rates of its own sweep, instead of its study's.
    """

    label: str
    task: Task
    method: str
    changes: tuple[tuple[str, object], ...] = ()
    panel: str = ""
    tuned_as: str = ""
    learning_rate: float | None = None
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Study:
    """
    Args:
        name, title (`str`): What it is called, and what its figure is headed with.
        arms (`tuple` of `Arm`): What is compared.
        figure (`str`): `"curves"`, `"levels"` (a number a panel against a knob), `"dots"` or `"branches"`.
        swept (`bool`): Whether it chooses learning rates, for itself and for the studies that are `tuned_as` it.
        knob (`str`): What differs from panel to panel.
        rates (`tuple[float, ...]`): Learning rates of the sweep.
        budget (`Budget`): How long a run is.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    figure: str = "curves"
    swept: bool = False
    knob: str = ""
    rates: tuple[float, ...] = LEARNING_RATES
    budget: Budget = field(default_factory=Budget)


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
FEW = ("grpo", "tempo", "prefix_baseline", "tempo, entropy trees")
CREDITS = ("grpo", "tempo", "prefix_baseline", "grpo_lambda")  # of independent completions: trees cost thrice the time


def _arms(task: Task, labels=tuple(ALL), panel: str = "") -> tuple[Arm, ...]:
    return tuple(Arm(label, task, *ALL[label], panel=panel, tuned_as=label) for label in labels)


def _at_one_rate(task: Task, panel: str) -> tuple[Arm, ...]:
    """`CREDITS`, and GRPO also at the rate of GRPO-lambda, which is twice its own: a lead may be the rate's."""
    own = _arms(task, CREDITS, panel)
    return *own, replace(own[0], label="grpo, rate 8e-4", learning_rate=8e-4)


def _chain() -> Study:
    return Study("chain", "Chain of five steps: every step may slip", _arms(Chain()), swept=True)


def _plan() -> Study:
    """One character in thirteen is to be learned: longer runs, higher rates."""
    title = "Plan: one early decision, noisy execution"
    return Study("plan", title, _arms(Plan()), swept=True, rates=PLAN_RATES, budget=Budget(20, 10))


def _batch() -> Study:
    """Two prompts per update are noisy, sixteen are not: each size has its own rates."""
    small = (("per_device_train_batch_size", 16),)
    arms = _arms(Plan(), FEW, "256 completions a generation")
    arms += tuple(
        replace(arm, changes=arm.changes + small, panel="32 completions a generation", tuned_as=f"{arm.label}, 32")
        for arm in arms
    )
    rates = tuple(rate / 2 for rate in PLAN_RATES)
    title = "Plan with small and large batches, equal tokens"
    return Study("batch", title, arms, swept=True, knob="batch", rates=rates, budget=Budget(20, 10))


def _wording() -> Study:
    panels = {1: "one phrase", 2: "two phrases", 4: "four phrases"}
    arms = (arm for n, panel in panels.items() for arm in _arms(Chain(wording=n), CREDITS, panel))
    return Study("wording", "Irrelevant wording: phrases that may open a step", tuple(arms), knob="wording")


def _kernel_arms(task: Task, panel: str, rate: float, tuned_as: str = "") -> tuple[Arm, ...]:
    """Equal and similar prefixes at the rate that is best for GRPO on this kind of task."""
    labels = ("grpo", "prefix_baseline", "kernel_baseline")
    return tuple(
        Arm(label, task, label, panel=panel, tuned_as=tuned_as or label, learning_rate=rate) for label in labels
    )


def _similarity() -> Study:
    panels = {1: "one phrase", 2: "two phrases", 4: "four phrases"}
    arms = (arm for n, panel in panels.items() for arm in _kernel_arms(Chain(wording=n), panel, 4e-4, "grpo"))
    return Study("similarity", "Equal and similar prefixes where wording varies", tuple(arms), knob="wording")


def _letters() -> Study:
    """Completions agree with each other in one step in fifty, so equal prefixes can tell next to nothing."""
    arms = _kernel_arms(Chain(wording=50), "fifty letters", 4e-4, "grpo")
    return Study("letters", "Equal and similar prefixes where one of fifty letters opens each step", arms)


def _kernel_chain() -> Study:
    own = Arm("kernel_baseline, own rate", Chain(), "kernel_baseline", tuned_as="kernel_baseline, own rate")
    arms = (*_kernel_arms(Chain(), "", 4e-4), own)
    return Study("kernel_chain", "Equal and similar prefixes on the chain", arms, swept=True)


def _kernel_plan() -> Study:
    own = Arm("kernel_baseline, own rate", Plan(), "kernel_baseline", tuned_as="kernel_baseline, own rate")
    arms = (*_kernel_arms(Plan(), "", 4e-3), own)
    title = "Equal and similar prefixes on the plan"
    return Study("kernel_plan", title, arms, swept=True, rates=PLAN_RATES, budget=Budget(20, 10))


def _lengths() -> dict[int, Chain]:
    """All start at the accuracy of the base chain: what differs is the length, not the difficulty."""
    base = Chain()
    return {n: base if n == base.steps else Chain(n, slip_rate_for(START_ACCURACY, n)) for n in (3, 5, 10, 20)}


def _carried() -> Study:
    arms = (arm for n, task in _lengths().items() for arm in _at_one_rate(task, f"{n} steps"))
    title = "A learning rate carried over from five steps to other lengths"
    return Study("carried", title, tuple(arms), knob="steps")


def _length() -> Study:
    """Each length has its own sweep, around rates that fall with it: what is best for five steps breaks ten."""

    def tuned(arm: Arm, steps: int, share: float) -> Arm:
        return replace(arm, tuned_as=f"{arm.label}, {steps} steps", rates=tuple(share * x for x in LEARNING_RATES))

    shares = {3: 1.0, 5: 1.0, 10: 0.5, 20: 0.25}
    arms = (tuned(arm, n, shares[n]) for n, task in _lengths().items() for arm in _arms(task, CREDITS, f"{n} steps"))
    title = "Chain length, each method at its own best rate for it"
    return Study("length", title, tuple(arms), swept=True, knob="steps")


def _equal_rates() -> Study:
    """What of `length` is the method's, and what is the rate's that one run chose: here GRPO's best is everyone's."""
    best = {3: 4e-4, 5: 4e-4, 10: 2e-4, 20: 1e-4}  # of GRPO in the sweeps of `length`
    own = ((n, arm) for n, task in _lengths().items() for arm in _arms(task, CREDITS, f"{n} steps"))
    arms = (replace(arm, learning_rate=best[n]) for n, arm in own)
    title = "Chain length, every method at GRPO's best rate for it"
    return Study("equal_rates", title, tuple(arms), knob="steps")


def _slip() -> Study:
    slips = (0.08, Chain().slip_rate, 0.25)
    arms = (arm for slip in slips for arm in _at_one_rate(Chain(slip_rate=slip), f"slip rate {slip:g}"))
    return Study("slip", "Slip rate of the starting policy", tuple(arms), knob="slip rate")


def _group_size() -> Study:
    def changed(arm: Arm, size: int) -> Arm:
        return Arm(arm.label, arm.task, arm.method, (("num_generations", size),), f"G = {size}", arm.tuned_as)

    sizes, labels = (3, 5, 7, 9, 16), ("grpo", "tempo", "prefix_baseline")  # the paper's, and twice the recipes'
    arms = (changed(arm, size) for size in sizes for arm in _arms(Chain(), labels))
    return Study("group_size", "Group size at equal generated tokens", tuple(arms), figure="levels", knob="G")


def _branches() -> Study:
    recorded = (("log_trees_steps", 2), ("log_trees_prompts", 32))
    arms = (Arm("tempo", Chain(), "tempo", recorded, tuned_as="tempo"),)
    return Study("branches", "Accuracy by the branches of a group's prefix tree", arms, figure="branches")


def _variants(method: str, task: Task, variants: dict[str, tuple]) -> tuple[Arm, ...]:
    named = (Arm(label, task, method, changes, tuned_as=method) for label, changes in variants.items())
    return _arms(task, ("grpo",)) + tuple(named)


def _lambda() -> Study:
    """Lambda 0 is GRPO at this rate; the method adds a trace and a floor under advantages: each alone, too."""
    variants = {
        "lambda 0, no floor": (("trace_lambda", 0.0),),
        "floor alone": (("trace_lambda", 1e-6),),
        "trace alone, 0.99": (("min_advantage", None),),
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


def _tempo_ablation() -> Study:
    variants = {
        "tempo": (),
        "no clip-higher": (("epsilon_high", 0.2),),
        "no token-mean loss": (("loss_type", "grpo"),),
        "neither": (("epsilon_high", 0.2), ("loss_type", "grpo")),
        **{f"td_coef {value:g}": (("td_coef", value),) for value in (0.5, 2.0, 4.0)},
    }
    arms = _variants("tempo", Chain(), variants)
    return Study("tempo_ablation", "TEMPO: clip-higher, token-mean loss, td_coef", arms, figure="dots")


STUDIES: dict[str, Callable[[], Study]] = {
    "chain": _chain,
    "plan": _plan,
    "batch": _batch,
    "wording": _wording,
    "similarity": _similarity,
    "letters": _letters,
    "kernel_chain": _kernel_chain,
    "kernel_plan": _kernel_plan,
    "group_size": _group_size,
    "branches": _branches,
    "tempo_ablation": _tempo_ablation,
    "lambda": _lambda,
    "treerpo": _treerpo,
    "carried": _carried,
    "length": _length,
    "equal_rates": _equal_rates,
    "slip": _slip,
}


def study(name: str) -> Study:
    """The study of a name. Its arms are created on each call, so that a test can change a constant before."""
    return STUDIES[name]()
