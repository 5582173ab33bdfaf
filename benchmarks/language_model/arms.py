"""What is compared on the language model: an arm is a recipe with changes."""

from dataclasses import dataclass

STEPS, LONG_STEPS = 20, 150
BASELINE = "grpo"
HERE = "benchmarks.language_model"


@dataclass(frozen=True)
class Arm:
    """
    Args:
        recipe (`str`): Name of the recipe of the task that it starts from.
        changes (`tuple` of pairs): Fields that differ from it.
        rated_as (`str`): The arm whose learning rate it takes; its own if empty.
    """

    recipe: str
    changes: tuple[tuple[str, object], ...] = ()
    rated_as: str = ""


@dataclass(frozen=True)
class Cell:
    """One run: an arm at a learning rate with a seed."""

    arm: str
    learning_rate: float
    seed: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.arm},lr={self.learning_rate:g},seed={self.seed},steps={self.steps}"


def _function(path: str, *changes: tuple[str, object], rated_as: str = "") -> Arm:
    """An arm with a credit function."""
    own = ("method", "token_credit"), ("credit_func", path), ("tree_forward", "on")
    return Arm("grpo", (*own, *changes), rated_as)


# GRPO and HEPO are TEMPO's trainer with `td_coef` 0, which trains like TRL's (tests say so), on the tree and so in
# less time.
ARMS = {
    "grpo": Arm("tempo", (("td_coef", 0.0),)),
    "tempo": Arm("tempo"),
    "prefix_baseline": Arm("prefix_baseline"),
    "grpo_lambda": Arm("grpo_lambda"),
    "grpo_lambda without trace": Arm("grpo_lambda", (("trace_lambda", 1e-6),)),  # the floor alone
    "hepo": Arm("tempo", (("td_coef", 0.0), ("top_entropy_quantile", 0.2))),
    "oracle": _function(f"{HERE}.credit_functions.oracle"),
}
CONTROLS = {
    "tempo at GRPO's rate": Arm("tempo", rated_as=BASELINE),
    "prefix_baseline at GRPO's rate": Arm("prefix_baseline", rated_as=BASELINE),
}


def arms_with_criteria(task: str, criteria: int) -> dict[str, Arm]:
    """
    The arms of a task whose answers are judged by several criteria, the most important first. All see the same checks
    ([`~benchmarks.language_model.criteria`]).

    Args:
        task (`str`): The task.
        criteria (`int`): Number of criteria in an answer.
    """
    checks = f"{HERE}.criteria.{task}"
    mean, places = ("reward_funcs", f"{checks}_mean"), ("span_reward_funcs", checks)
    each = tuple(f"{checks}_{k}" for k in range(criteria))
    grpo, floor = ("td_coef", 0.0), ("advantage_floor", -0.1)  # GRPO-lambda's floor
    return {
        "grpo": Arm("tempo", (grpo, mean)),
        "span_credit": Arm("span_credit", (places, ("trace_lambda", 0.0))),
        "tempo": Arm("tempo", (mean,)),
        "gdpo": Arm("tempo", (grpo, ("reward_funcs", each), ("multi_objective_aggregation", "normalize_then_sum"))),
        "prefix_baseline": Arm("prefix_baseline", (mean,)),
        "span_credit lambda 1": Arm("span_credit", (places, ("trace_lambda", 1.0))),
        # From here on one thing differs from an arm above, at that arm's rate.
        "span_credit lambda 0.9": Arm("span_credit", (places, ("trace_lambda", 0.9)), rated_as="span_credit"),
        # Their recipe has a reward, which these credit functions do not read, and TRL logs.
        "span_credit one scale": _function(f"{HERE}.credit_functions.one_scale", places, rated_as="span_credit"),
        "span_credit shuffled": _function(f"{HERE}.credit_functions.shuffled_places", places, rated_as="span_credit"),
        "grpo all or nothing": Arm("tempo", (grpo, ("reward_funcs", f"{checks}_all")), rated_as=BASELINE),
        "grpo with floor": Arm("tempo", (grpo, mean, floor), rated_as=BASELINE),
        "prefix_baseline with floor": Arm("prefix_baseline", (mean, floor), rated_as="prefix_baseline"),
    }
