"""The data of a run, checked before a model is loaded: prompts, and columns with which functions can be called."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig
from trl.trainer.utils import get_callable_name

from tempo_trl.trainers.checks import OF_TRL, refuse_columns

NOT_PASSED = {"prompt", "completion", "completion_ids"}  # columns that TRL does not pass
KEPT = {"prompt", "image", "images"}  # columns that TRL keeps with `remove_unused_columns`


def by_argument(reward_funcs: Any, step_reward_funcs: list, span_reward_funcs: list) -> dict[str, list]:
    """The functions of a run, by the argument that they are passed as."""
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    of_places = {"step_reward_funcs": step_reward_funcs, "span_reward_funcs": span_reward_funcs}
    return {"reward_funcs": rewards} | of_places


def check_datasets(
    args: GRPOConfig | None, train: Any, evaluated: Any, functions: dict[str, list], has_environments: bool
) -> None:
    """
    Check the datasets of a run as far as their columns are known: those of a stream may not be.

    Args:
        args ([`~trl.GRPOConfig`], *optional*):
            The configuration, which says whether the run evaluates, and whether it keeps all columns.
        train, evaluated:
            Datasets; the second may be a dict of them, or None.
        functions (`dict[str, list]`):
            The functions, as [`by_argument`] has them.
        has_environments (`bool`):
            Whether the run has an `environment_factory`.

    Raises:
        ValueError: a dataset has no prompts, which environments may bring, or a row lacks its own; a column has the
            name of something else that the functions get; or a function cannot be called with what it gets.
    """
    of_evaluation = evaluated.values() if isinstance(evaluated, dict) else [evaluated]
    evaluates = getattr(args, "do_eval", False) or getattr(args, "eval_on_start", False)
    for dataset, is_read in ((train, True), *((each, evaluates) for each in of_evaluation)):
        columns = _columns_of(dataset)
        if columns is None:
            continue
        if not has_environments:
            _refuse_missing_prompts(dataset, columns)
        passed = KEPT & {*columns} if getattr(args, "remove_unused_columns", False) else {*columns}
        refuse_columns(passed, have_texts=bool(functions["span_reward_funcs"]))
        given = passed - NOT_PASSED | OF_TRL | {"completion_ids"} | ({"environments"} if has_environments else set())
        for argument, own in functions.items() if is_read else ():
            texts = {"texts"} if argument == "span_reward_funcs" else set()
            for function in own:
                _refuse_a_call_that_fails(argument, function, given | texts)


def _refuse_missing_prompts(dataset: Any, columns: list[str]) -> None:
    """
    Raise ValueError for a dataset or a row without a prompt. All rows are read only if Arrow says that one lacks it.
    """
    if "prompt" not in columns:
        raise ValueError(f"the dataset has no column 'prompt', only {', '.join(columns)}. Rename one, or add it.")
    is_stored = isinstance(dataset, Dataset) and "prompt" in dataset.features
    if is_stored and dataset.data.column("prompt").null_count and None in (prompts := list(dataset["prompt"])):
        raise ValueError(f"the prompt of row {prompts.index(None)} is null, expected text or messages. Drop the row.")


def _columns_of(dataset: Any) -> list[str] | None:
    columns = getattr(dataset, "column_names", None)
    if columns and hasattr(dataset, "__len__") and len(dataset):
        return list(dataset[0])  # of a row as it is read: a transform may make or hide columns
    return columns


def _refuse_a_call_that_fails(argument: str, function: Callable, given: set[str]) -> None:
    """Raise ValueError if a function needs something else than it gets, or does not take all of that."""
    if not callable(function) or isinstance(function, torch.nn.Module):
        return
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # one that wraps another may pass on less
    except (ValueError, TypeError):  # it has none
        return
    try:
        signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        texts = signature.parameters.get("texts")
        advice = "Add the column to the dataset, or **columns to the function."
        if texts and texts.default is texts.empty and "texts" not in given:
            advice = "Functions of `texts` are `span_reward_funcs`, and `mean_reward` makes reward functions of them."
        raise ValueError(
            f"`{argument}` {get_callable_name(function)} cannot be called with what it gets "
            f"({', '.join(sorted(given))}): {error}. {advice}"
        ) from error
