"""What is compared on the language model, and in which order it runs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

RATES = (1.25e-5, 2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4)
FIRST_RATES = (5e-5, 1e-4)  # then the neighbours of the best, so that it does not lie at an end of what was tried
SWEEP_SEEDS = (100, 101)  # they choose the rates, and never count
SEEDS, CONTROL_SEEDS = (0, 1, 2, 3, 4), (0, 1, 2)
STEPS, LONG_STEPS = 20, 150
BASELINE = "grpo"


@dataclass(frozen=True)
class Arm:
    """
    Args:
        recipe (`str`): Name of the recipe in `smollm2-135m/instructions` that it starts from.
        changes (`tuple` of pairs): Fields that differ from it.
        rated_as (`str`): The arm whose learning rate it takes; its own if empty.
        factor (`float`): Of that rate.
    """

    recipe: str
    changes: tuple[tuple[str, object], ...] = ()
    rated_as: str = ""
    factor: float = 1.0


def _function(name: str, module: str = "credit_functions") -> Arm:
    function = f"benchmarks.language_model.{module}.{name}"
    changes = ("method", "token_credit"), ("credit_func", function), ("tree_forward", "on")
    return Arm("grpo", changes, rated_as=BASELINE)


# GRPO and HEPO are TEMPO's trainer with `td_coef` 0, which trains like TRL's (tests say so), on the tree and so in
# less time.
ARMS = {
    "grpo": Arm("tempo", (("td_coef", 0.0),)),
    "tempo": Arm("tempo"),
    "prefix_baseline": Arm("prefix_baseline"),
    "kernel_baseline": Arm("kernel_baseline"),
    "grpo_lambda": Arm("grpo_lambda"),
    "grpo_lambda without trace": Arm("grpo_lambda", (("trace_lambda", 1e-6),)),  # the floor alone
    "hepo": Arm("tempo", (("td_coef", 0.0), ("top_entropy_quantile", 0.2))),
    "oracle": _function("oracle"),
    "hidden_baseline": _function("hidden_baseline", "critic"),
    "hidden_td": _function("hidden_td", "critic"),
    "shear": _function("shear", "shear"),
}
CONTROLS = {
    "grpo at twice its rate": Arm("tempo", (("td_coef", 0.0),), BASELINE, 2.0),
    "grpo at four times its rate": Arm("tempo", (("td_coef", 0.0),), BASELINE, 4.0),
    "tempo at GRPO's rate": Arm("tempo", rated_as=BASELINE),
    "prefix_baseline at GRPO's rate": Arm("prefix_baseline", rated_as=BASELINE),
    "kernel_baseline at GRPO's rate": Arm("kernel_baseline", rated_as=BASELINE),
    "grpo with the first token twice": _function("first_1"),
    "grpo with the first 3 tokens twice": _function("first_3"),
    "grpo with the first 8 tokens twice": _function("first_8"),
    "tempo with shuffled TD errors": Arm("grpo", _function("shuffled_td").changes, rated_as="tempo"),
    "tempo with td_coef 0.5": Arm("tempo", (("td_coef", 0.5),), rated_as="tempo"),
    "tempo with td_coef 2": Arm("tempo", (("td_coef", 2.0),), rated_as="tempo"),
    "grpo without clipping": Arm("tempo", (("td_coef", 0.0), ("max_grad_norm", 0.0)), rated_as=BASELINE),
    "tempo without clipping": Arm("tempo", (("max_grad_norm", 0.0),), rated_as="tempo"),
    "tempo without the tree pass": Arm("tempo", (("tree_forward", "off"),), rated_as="tempo"),
}


@dataclass(frozen=True)
class Cell:
    """One run: an arm at a learning rate with a seed."""

    arm: str
    learning_rate: float
    seed: int
    steps: int = STEPS

    @property
    def name(self) -> str:
        return f"{self.arm},lr={self.learning_rate:g},seed={self.seed},steps={self.steps}"


def sweep(to_try: Callable[[str], Iterable[float]], best_two: Callable[[str], Iterable[float]]) -> Iterator[Cell]:
    """
    Every arm on the first of the sweep's seeds, and at its best two rates on the others.

    Args:
        to_try (`Callable`): The rates that an arm is tried at on the first seed, as far as they are known.
        best_two (`Callable`): The best two of them; none before all have been run.
    """
    first, *others = SWEEP_SEEDS
    for arm in ARMS:
        yield from (Cell(arm, rate, first) for rate in to_try(arm))
    for seed in others:
        for arm in ARMS:
            yield from (Cell(arm, rate, seed) for rate in best_two(arm))


def final(rates: dict[str, float]) -> Iterator[Cell]:
    """Every arm at its own rate. A pair of a seed runs one after the other, so a cut study has whole pairs."""
    for seed in SEEDS:
        yield from (Cell(arm, rates[arm], seed) for arm in ARMS if arm in rates)


def controls(rates: dict[str, float]) -> Iterator[Cell]:
    """The controls, at the rates of the arms that they vary."""
    for seed in CONTROL_SEEDS:
        for name, arm in CONTROLS.items():
            if arm.rated_as in rates:
                yield Cell(name, arm.factor * rates[arm.rated_as], seed)


def long(rates: dict[str, float], best: str) -> Iterator[Cell]:
    """GRPO and the arm that stands best, for long: is it stable?"""
    for arm in dict.fromkeys((BASELINE, best)):
        if arm in rates:
            yield Cell(arm, rates[arm], SEEDS[0], LONG_STEPS)
