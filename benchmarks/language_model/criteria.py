"""The checks of the tasks whose answers are judged by several criteria, in the form that each arm needs.

    orders          span reward function: every criterion with its place
    orders_mean     reward function: the mean of the criteria
    orders_all      reward function: 1.0 if all criteria are right
    orders_0, ...   reward functions: one criterion each, in the order of their names

The checks are those of the task's recipe `span_credit`. All of these functions log the same metrics: `fields/NAME`,
the mean of a criterion; `fields/mean`, the mean of all; `fields/all`, the share of completions with all right;
`fields/pass`, the share of prompts with such a completion; `fields/distinct`, the share of completions with all right
and another text than those before of the same prompt.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache

from benchmarks.tasks import recipe_of
from tempo_trl.launch.fields import SPAN_REWARDS
from tempo_trl.launch.functions import load_function
from tempo_trl.rewards import SpanReward, mean_reward
from tempo_trl.runs.recipes import read_recipe

OF_ALL = "mean", "all", "pass", "distinct"  # metrics that are of no single criterion
CRITERIA = {"orders": 9, "calls": 6, "word_sums": 13, "products": 8, "directory": 5}  # that an answer is judged by
Judge = Callable[..., list[list[SpanReward]]]


def __getattr__(name: str) -> Callable:
    """A function of a task, which recipes name by its dotted path."""
    found = {key: function for task in CRITERIA if name.startswith(task) for key, function in functions(task).items()}
    if name not in found:
        raise AttributeError(f"no function {name!r}, expected one of a task: {', '.join(CRITERIA)}")
    return found[name]


@cache
def functions(task: str) -> dict[str, Callable]:
    """All functions of a task by their names in this module."""
    (name,) = read_recipe(recipe_of(task, "span_credit"))["span_reward_funcs"]
    judge = logged(load_function(SPAN_REWARDS.get(name, name)), task)
    each = {f"{task}_{k}": criterion(judge, k) for k in range(CRITERIA[task])}
    return {task: judge, f"{task}_mean": mean_reward(judge), f"{task}_all": all_right(judge), **each}


def logged(judge: Judge, name: str) -> Judge:
    """A span reward function that logs the metrics."""

    def logging(texts: list[str], log_metric: Callable[[str, float], None] | None = None, **columns):
        judged = judge(texts=texts, **columns)
        if log_metric is not None:
            for metric, value in (means(judged) | kept_open(judged, texts, columns.get("prompts", texts))).items():
                log_metric(f"fields/{metric}", value)
        return judged

    logging.__name__ = logging.__qualname__ = name
    return logging


def means(judged: list[list[SpanReward]]) -> dict[str, float]:
    """Mean reward of each criterion, and the mean and the share of all right over completions."""
    found = defaultdict(list)
    for own in filter(None, map(rewards, judged)):
        for name, reward in own.items():
            found[name].append(reward)
        found["mean"].append(sum(own.values()) / len(own))
        found["all"].append(float(all(reward == 1.0 for reward in own.values())))
    return {name: sum(values) / len(values) for name, values in found.items()}


def kept_open(judged: list[list[SpanReward]], texts: list[str], prompts: list) -> dict[str, float]:
    """How many prompts are solved, and by how many texts: what is left to learn from."""
    right = defaultdict(set)
    for spans, text, prompt in zip(judged, texts, map(str, prompts), strict=True):
        right[prompt] |= {text} if (own := rewards(spans)) and min(own.values()) == 1.0 else set()
    solved, distinct = sum(map(bool, right.values())), sum(map(len, right.values()))
    return {"pass": solved / len(right), "distinct": distinct / len(texts)}


def rewards(spans: list[SpanReward]) -> dict[str, float]:
    """Reward of each criterion by which a completion was judged."""
    return {span.name: float(span.reward) for span in spans if span.reward is not None}


def all_right(judge: Judge) -> Callable[..., list[float | None]]:
    """A reward function: 1.0 if all criteria of a completion are right, else 0.0."""

    def success(texts: list[str], **columns) -> list[list[SpanReward]]:
        found = [min(rewards(spans).values(), default=None) for spans in judge(texts=texts, **columns)]
        return [[SpanReward("all", None if least is None else float(least == 1.0))] for least in found]

    return mean_reward(success)


def criterion(judge: Judge, k: int) -> Callable[..., list[float | None]]:
    """
    A reward function: criterion `k` of each completion in the order of their names, or None. The completions of a
    prompt have the same names, so that one criterion is compared with itself. Criterion 0 logs for all.
    """

    def one(texts: list[str], log_metric: Callable | None = None, **columns) -> list[list[SpanReward]]:
        judged = judge(texts=texts, log_metric=None if k else log_metric, **columns)
        return [sorted(span for span in spans if span.reward is not None)[k : k + 1] for spans in judged]

    one.__name__ = f"criterion_{k}"
    return mean_reward(one)
