"""From a span reward function to a reward function of TRL."""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction

from tempo_trl.rewards.boxed import completion_text
from tempo_trl.rewards.span_reward import SpanReward


def mean_reward(span_reward_func: Callable) -> Callable:
    """
    A reward function for TRL: per completion, the mean reward of the criteria that a span reward function returns.

    It returns exactly 1.0 if all criteria earn 1.0, and None if none was judged. A criterion that is None or NaN is
    left out, and one with several places counts once. The function's `texts` are the answers without special tokens.
    Plain GRPO with this reward and span credit with the function therefore see equal rewards. A function of your own
    that reads `texts` alone gets the last answer here, and in training all turns and thoughts.

    Args:
        span_reward_func (`Callable`):
            The span reward function, such as [`~tempo_trl.rewards.json_fields`], with options in a
            [`functools.partial`]. If it is `async`, the reward function is `async` as well.

    Returns:
        `Callable`: The reward function `reward(completions, **columns) -> list[float | None]`, named after the
        function: `json_fields_reward`.
    """

    def reward(completions: list[list[dict[str, str]]] | list[str], **columns) -> list[float | None]:
        return _means(span_reward_func(**_keywords(completions, columns)))

    async def async_reward(completions: list[list[dict[str, str]]] | list[str], **columns) -> list[float | None]:
        return _means(await span_reward_func(**_keywords(completions, columns)))

    return made_of(span_reward_func, reward, async_reward, "_reward")


def made_of(func: Callable, plain: Callable, asynchronous: Callable, suffix: str = "") -> Callable:
    """Of two functions that call another one, the second if that one is `async`. It gets its name, with a suffix."""
    while isinstance(func, partial):
        func = func.func
    made = asynchronous if iscoroutinefunction(func) or iscoroutinefunction(func.__call__) else plain
    made.__name__ = made.__qualname__ = getattr(func, "__name__", type(func).__name__) + suffix
    return made


def _keywords(completions: list, columns: dict) -> dict:
    return columns | {"completions": completions, "texts": list(map(completion_text, completions))}


def _means(judged: list[list[SpanReward]]) -> list[float | None]:
    return [mean_of({span.name: span.reward for span in spans}) for spans in judged]


def mean_of(rewards: dict[str, float | None]) -> float | None:
    """Mean of the criteria that were judged; None if none was."""
    known = [float(reward) for reward in rewards.values() if reward is not None and reward == reward]
    return sum(known) / len(known) if known else None
