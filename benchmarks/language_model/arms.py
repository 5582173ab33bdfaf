"""What is compared on the language model: an arm is a recipe with changes."""

from dataclasses import dataclass, replace

BASELINE = "grpo"
LOOKS = 2  # seeds of a first look


@dataclass(frozen=True)
class Start:
    """
    A policy that was fine-tuned on right answers.

    Args:
        examples (`int`): How many.
        learning_rate (`float`): Of the fine-tuning.
        epochs (`int`): How often it saw each of them.
    """

    examples: int
    learning_rate: float
    epochs: int = 1

    @property
    def name(self) -> str:
        """What the tables call fine-tuning alone."""
        return f"fine-tuned on {self.examples}" + (f", {self.epochs} epochs" if self.epochs > 1 else "")

    @property
    def folder(self) -> str:
        """Name of its folder, beside those of the cells."""
        return f"start_{self.examples}" + (f"_epochs_{self.epochs}" if self.epochs > 1 else "")


@dataclass(frozen=True)
class Arm:
    """
    Args:
        recipe (`str`): Name of the recipe of the task that it starts from.
        changes (`tuple` of pairs): Fields that differ from it.
        rated_as (`str`): The arm whose learning rate it takes; its own if empty.
        start ([`Start`], *optional*): The policy that it starts from. Defaults to the study's.
        seeds (`int`): How many of the study's seeds it runs on; all if 0.
    """

    recipe: str
    changes: tuple[tuple[str, object], ...] = ()
    rated_as: str = ""
    start: Start | None = None
    seeds: int = 0


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


# GRPO and HEPO are TEMPO's trainer with `td_coef` 0, which trains like TRL's (tests say so), on the tree and so in
# less time.
GRPO = ("td_coef", 0.0)
CHECKS = "benchmarks.language_model.criteria"
LAMBDA_GRPO = ("credit_func", "benchmarks.language_model.lambda_grpo.lambda_grpo")
ARMS = {
    "grpo": Arm("tempo", (GRPO,)),
    "tempo": Arm("tempo"),
    "prefix_baseline": Arm("prefix_baseline"),
    "grpo_lambda": Arm("grpo_lambda"),
    "grpo_lambda without trace": Arm("grpo_lambda", (("trace_lambda", 1e-6),)),  # the floor alone
    "hepo": Arm("tempo", (GRPO, ("top_entropy_quantile", 0.2))),
}


def arms_with_criteria(task: str, criteria: int) -> dict[str, Arm]:
    """
    The arms of a task whose answers are judged by several criteria, the most important first. All see the same checks
    ([`~benchmarks.language_model.criteria`]).

    Args:
        task (`str`): The task.
        criteria (`int`): Number of criteria in an answer.
    """
    mean, places = _paid(task, "_mean"), ("span_reward_funcs", f"{CHECKS}.{task}")
    each = tuple(f"{CHECKS}.{task}_{k}" for k in range(criteria))

    def span_credit(trace_lambda: float, rated_as: str = "") -> Arm:
        return Arm("span_credit", (places, ("trace_lambda", trace_lambda)), rated_as)

    return {
        "grpo": Arm("tempo", (GRPO, mean)),
        "span_credit": span_credit(0.0),
        "tempo": Arm("tempo", (mean,)),
        "gdpo": Arm("tempo", (GRPO, ("reward_funcs", each), ("multi_objective_aggregation", "normalize_then_sum"))),
        "prefix_baseline": Arm("prefix_baseline", (mean,)),
        "span_credit lambda 1": span_credit(1.0),
        "span_credit lambda 0.9": span_credit(0.9, rated_as="span_credit"),
    }


def arms_after_examples(task: str, criteria: int) -> dict[str, Arm]:
    """
    The arms of a task with criteria where the policy was fine-tuned first, the most important ones first. The last
    three are first looks.

    Args:
        task (`str`): The task.
        criteria (`int`): Number of criteria in an answer.
    """
    arms = arms_with_criteria(task, criteria)
    lambda_grpo = Arm("prefix_baseline", (("method", "token_credit"), _paid(task, "_mean"), LAMBDA_GRPO))
    return {
        "grpo": arms["grpo"],
        "span_credit": replace(arms["span_credit lambda 0.9"], rated_as=""),
        "tempo": replace(arms["tempo"], rated_as=BASELINE),  # what it adds is 2 to 6% of the credit
        "gdpo": _first_look(arms["gdpo"]),
        "prefix_baseline": _first_look(arms["prefix_baseline"]),
        "lambda_grpo": _first_look(lambda_grpo),
    }


def _paid(task: str, form: str) -> tuple[str, str]:
    return "reward_funcs", f"{CHECKS}.{task}{form}"


def _first_look(arm: Arm, rated_as: str = BASELINE) -> Arm:
    """An arm on two seeds at another one's rate. A study in which it leads runs it on all of its seeds."""
    return replace(arm, rated_as=rated_as, seeds=LOOKS)


def on_success(task: str, agent: bool) -> dict[str, Arm]:
    """Arms that are paid for success alone: 1 if all criteria are right. GiGPO and HGPO are for agents."""
    success = _paid(task, "_all")
    others = {name: Arm("prefix_baseline", (("method", name), success)) for name in ("gigpo", "hgpo") if agent}
    return {
        "grpo on success": Arm("tempo", (GRPO, success)),
        **{f"{name} on success": _first_look(arm, "grpo on success") for name, arm in others.items()},
    }


def on_entropy_trees(task: str) -> dict[str, Arm]:
    """
    A first look at TEMPO on trees that split where the policy is uncertain, at about as many sampled tokens: the trees
    of products have 0.62 times the tokens of eight independent completions, so that a step has 13 prompts and not 8.
    """
    tree = {
        "rollout": "entropy",
        "tree_min_segment_tokens": 3,
        "tree_entropy_threshold": 0.5,
        "tree_coverage_tokens": 24,
        "tree_delimiters": ('"', ":", "[", ","),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 13,
    }
    return {"tempo on trees": _first_look(Arm("tempo", (_paid(task, "_mean"), *tree.items())))}


def more_and_again(start: Start) -> tuple[Start, ...]:
    """A start, on twice and four times as many examples, and on the same ones in two and four epochs."""
    more = (replace(start, examples=times * start.examples) for times in (1, 2, 4))
    return *more, *(replace(start, epochs=epochs) for epochs in (2, 4))


def fine_tuning(grpo: Arm, starts: tuple[Start, ...]) -> dict[str, Arm]:
    """Fine-tuning alone: runs of GRPO at rate 0, which only answer the held-out prompts."""
    return {start.name: replace(grpo, start=start) for start in starts}
