"""What a `rollout_func` may return: rows of the prompts that it was called with, in their order."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase
from trl.trainer.grpo_trainer import RolloutFunc

from tempo_trl.rewards.reading import content_of

OF_TRL = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
SHORT = 16  # characters of a prompt that may stand in another by chance


def checked_rollout(rollout: RolloutFunc) -> Callable:
    """
    A `rollout_func` whose result is compared with the prompts that it was called with.

    Raises:
        ValueError: when it is called, if the result has another number of rows than there are prompts, a completion
            without a token, log-probabilities or an `env_mask` of another length than their completion, rows in
            another order than the prompts, or an `env_mask` where TRL would call the trainer's tools.
    """

    def call(prompts: list, trainer) -> dict[str, Any]:
        output = rollout(prompts, trainer)
        if not isinstance(output, dict):
            raise ValueError(f"`rollout_func` must return a dict, got {type(output).__name__}.")
        if {"prompt_ids", "completion_ids"} <= output.keys():
            _check_counts(output, len(prompts))
            _check_lengths(output)
            _check_order(output, prompts, trainer._tokenizer)
        if output.get("env_mask") is not None and trainer.tools:
            raise ValueError(
                f"`rollout_func` returned an `env_mask`, which TRL drops beside tools, got {trainer.tools}: it would "
                "call them again, and train on the environment's tokens. Leave out `tools` and an "
                "`environment_factory` with tools, or the `env_mask` of a rollout that calls none itself."
            )
        return output  # TRL says which keys are missing

    return call


def _rows(output: dict[str, Any], name: str) -> Sequence:
    """A field's rows; a tensor has no truth value."""
    return () if output.get(name) is None else output[name]


def _check_counts(output: dict[str, Any], rows: int) -> None:
    """Every list has one entry per prompt. Fields of its own may be single values, which TRL gives to all rows."""
    for name, values in output.items():
        is_column = isinstance(values, list) or (name in OF_TRL and values is not None)
        if is_column and len(values) != rows:
            raise ValueError(
                f"`rollout_func` must return one row per prompt, got {len(values)} rows of `{name}` for {rows} "
                "prompts, which TRL has already repeated `num_generations` times. Return one completion for each, in "
                "the order of the prompts, and in other lists one value for each."
            )


def _check_lengths(output: dict[str, Any]) -> None:
    """Every row has a token, and a log-probability and a mask for each of its completion's tokens."""
    for name in ("prompt_ids", "completion_ids"):
        for row, ids in enumerate(_rows(output, name)):
            if len(ids) == 0:
                raise ValueError(
                    f"`rollout_func` must return at least one token in each row, got none in `{name}` of row {row}. "
                    "Return the end-of-sequence token for an answer without text."
                )
    for name in ("logprobs", "env_mask"):
        for row, values in enumerate(_rows(output, name)):
            tokens = len(output["completion_ids"][row])
            if len(values) != tokens:
                raise ValueError(
                    f"`rollout_func` must return one number per token of the completion in `{name}`, got "
                    f"{len(values)} for the {tokens} tokens of row {row}."
                )
            other = [value for value in values if name == "env_mask" and value not in (0, 1)]
            if other:
                raise ValueError(
                    f"`rollout_func` must return 1 for each token that the policy sampled and 0 for all others in "
                    f"`env_mask`, got {other[0]!r} in row {row}."
                )


def _check_order(output: dict[str, Any], prompts: list, tokenizer: PreTrainedTokenizerBase) -> None:
    """
    Raise ValueError if a row's `prompt_ids` have the text of another prompt and not that of its own.

    An environment may write prompts of its own: rows with no text of any prompt are left alone. In these a short
    prompt, such as a seed or `go`, may stand by chance, and counts only if it is all there is.
    """
    asked = [_squeezed(_text(prompt)) for prompt in prompts]
    known = {text for text in asked if text}
    for row, ids in enumerate(_rows(output, "prompt_ids")):
        seen = _squeezed(tokenizer.decode(ids, skip_special_tokens=True))
        if asked[row] in seen:
            continue
        told = (text for text in known if text == seen or (len(text) >= SHORT and text in seen))
        other = next(map(asked.index, told), None)
        if other is not None:
            raise ValueError(
                f"`rollout_func` must return its rows in the order of the prompts, got the text of prompt {other} in "
                f"`prompt_ids` of row {row}, whose prompt is {asked[row][:80]!r}. Rewards would read the columns of "
                "another row. Return the rows in the order in which the prompts came."
            )


def _text(prompt: str | Sequence[dict]) -> str:
    """What a prompt asks: its text, or that of its last message."""
    return prompt if isinstance(prompt, str) else "".join(map(content_of, prompt[-1:]))


def _squeezed(text: str) -> str:
    """A text without white space, which tokenizers and chat templates change."""
    return "".join(text.split())
