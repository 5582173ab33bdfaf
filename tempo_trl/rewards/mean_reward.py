"""From a span reward function to a reward function of TRL."""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from tempo_trl.rewards.reading import rendered
from tempo_trl.rewards.span_reward import SpanReward, checked_spans


def mean_reward(span_reward_func: Callable, tokenizer: Any = None) -> Callable:
    """
    A reward function for TRL: per completion, the mean reward of the criteria that a span reward function returns.

    It returns exactly 1.0 if all criteria earn 1.0, and None if none was judged. A criterion that is None is left out,
    and one with several places counts once. With the tokenizer, the function gets the same `texts` as in
    span credit, so that plain GRPO with this reward and span credit with the function see equal rewards.

    Args:
        span_reward_func (`Callable`):
            The span reward function, such as [`~tempo_trl.rewards.json_fields`], with options in a
            [`functools.partial`]. If it is `async`, the reward function is `async` as well.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            Decodes `completion_ids`, with special tokens, to the function's `texts`. In a recipe it is the run's. By
            default, a text is the completion, or its one message without special tokens.

    Returns:
        `Callable`: The reward function `reward(completions, **columns) -> list[float | None]`, named after the
        function: `json_fields_reward`. Its `with_tokenizer(tokenizer)` is the same one with a tokenizer.

    Raises:
        ValueError: when it is called without a tokenizer for completions of several messages, of which nobody knows
            the text; when the function returns what span credit would refuse.
    """

    def reward(completions: list[list[dict]] | list[str], **columns) -> list[float | None]:
        keywords = _keywords(completions, columns, reward.__name__, tokenizer)
        return _means(span_reward_func(**keywords), keywords["texts"], reward.__name__)

    async def async_reward(completions: list[list[dict]] | list[str], **columns) -> list[float | None]:
        keywords = _keywords(completions, columns, reward.__name__, tokenizer)
        return _means(await span_reward_func(**keywords), keywords["texts"], reward.__name__)

    made = made_of(span_reward_func, reward, async_reward, "_reward")
    reward.__name__, made.with_tokenizer = made.__name__, partial(mean_reward, span_reward_func)
    return made


def without_options(func: Callable) -> Callable:
    """The function in a [`functools.partial`], or in several; any other as it is."""
    while isinstance(func, partial):
        func = func.func
    return func


def made_of(func: Callable, plain: Callable, asynchronous: Callable, suffix: str = "") -> Callable:
    """Of two functions that call another one, the second if that one is `async`. It gets its name, with a suffix."""
    func = without_options(func)
    made = asynchronous if iscoroutinefunction(func) or iscoroutinefunction(func.__call__) else plain
    made.__name__ = made.__qualname__ = getattr(func, "__name__", type(func).__name__) + suffix
    return made


def _keywords(completions: list, columns: dict, name: str, tokenizer: Any) -> dict:
    """What the span reward function is called with."""
    if tokenizer is not None and columns.get("completion_ids") is not None:
        # As `TokenTexts` does for span credit.
        keep = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        texts = [tokenizer.decode(ids, **keep) for ids in columns["completion_ids"]]
    else:
        texts = [_text(completion, f"{name}, row {row}") for row, completion in enumerate(completions)]
    return columns | {"completions": completions, "texts": texts}


def _text(completion: list[dict] | str, where: str) -> str:
    if isinstance(completion, list) and len(completion) > 1:
        raise ValueError(
            f"{where}: got a completion of {len(completion)} messages without its token ids and a tokenizer, expected "
            "one message or a text. Give `mean_reward` the tokenizer, as in mean_reward(tool_call_fields, tokenizer), "
            "and call it with `completion_ids`, as TRL does, so that it judges the text that span credit judges."
        )
    return completion if isinstance(completion, str) else "".join(map(rendered, completion))


def _means(judged: list[list[SpanReward]], texts: list[str], name: str) -> list[float | None]:
    """Of each completion the mean of the criteria that were judged; None if none was."""
    rewards = ({span.name: span.reward for span in spans} for spans in checked_spans(judged, texts, name))
    known = ([float(reward) for reward in each.values() if reward is not None] for each in rewards)
    return [sum(own) / len(own) if own else None for own in known]
