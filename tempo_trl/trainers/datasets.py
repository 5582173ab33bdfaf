"""The data of a run, checked before a model is loaded: prompts, and columns with which functions can be called."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from trl.trainer.utils import get_callable_name

from tempo_trl.trainers.checks import NOT_PASSED, refuse_columns_that_are_given

GIVEN = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}  # to each, by TRL


def by_argument(reward_funcs: Any, step_reward_funcs: list, span_reward_funcs: list) -> dict[str, list]:
    """The functions of a run, by the argument that they are passed as."""
    rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    of_places = {"step_reward_funcs": step_reward_funcs, "span_reward_funcs": span_reward_funcs}
    return {"reward_funcs": rewards} | of_places


def given_beside(functions: dict[str, list], has_environments: bool) -> dict[str, set[str]]:
    """
    What the functions of each argument get beside columns of the dataset.

    Args:
        functions (`dict[str, list]`):
            The functions, as [`by_argument`] has them.
        has_environments (`bool`):
            Whether the run has an `environment_factory`.
    """
    given = {name: GIVEN | ({"environments"} if has_environments else set()) for name in functions}
    if functions["span_reward_funcs"]:
        given["span_reward_funcs"] |= {"texts"}
    return given


def check_datasets(datasets: Iterable[Any], functions: dict[str, list], has_environments: bool) -> None:
    """
    Check the datasets of a run as far as their columns are known: those of a stream may not be.

    Args:
        datasets (`Iterable`):
            Datasets, dicts of them, and None.
        functions, has_environments:
            As in [`given_beside`].

    Raises:
        ValueError: a dataset has no prompts, which environments may bring; a column has the name of something else
            that the functions get; or a function cannot be called with what it gets.
    """
    given = given_beside(functions, has_environments)
    for each in datasets:
        for columns in map(_columns_of, each.values() if isinstance(each, dict) else [each]):
            if columns is None:
                continue
            if "prompt" not in columns and not has_environments:
                raise ValueError(
                    f"the dataset has no column 'prompt', only {', '.join(columns)}. Rename one, or add it."
                )
            refuse_columns_that_are_given(columns, given)
            for name, own in functions.items():
                for function in own:
                    _refuse_another_call(function, given[name], {*columns} - NOT_PASSED)


def _columns_of(dataset: Any) -> list[str] | None:
    columns = getattr(dataset, "column_names", None)
    if columns and hasattr(dataset, "__len__") and len(dataset):
        return list(dataset[0])  # of a row as it is read: a transform may make or hide columns
    return columns


def _refuse_another_call(function: Callable, given: set[str], columns: set[str]) -> None:
    """Raise ValueError if a function needs something else than it gets, or does not take all of that."""
    if not callable(function) or isinstance(function, torch.nn.Module):
        return
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # one that wraps another may pass on less
    except ValueError:  # some in C have none
        return
    try:
        signature.bind(**dict.fromkeys(given | columns))
    except TypeError as error:
        advice = "Rename a column, or add **columns to the function."
        if "texts" in signature.parameters.keys() - given:
            advice = "Functions of `texts` are `span_reward_funcs`, and `mean_reward` makes reward functions of them."
        with_columns = f"with these columns of the dataset: {', '.join(sorted(columns)) or 'none'}"
        raise ValueError(
            f"the reward function {get_callable_name(function)} cannot be called as TRL calls it, {with_columns}: "
            f"{error}. {advice}"
        ) from error
