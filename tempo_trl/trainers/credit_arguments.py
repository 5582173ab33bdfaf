"""Checks of a trainer's own functions: `credit_func`, `step_reward_funcs` and `span_reward_funcs`."""

import io
import pickle
import re
from collections.abc import Callable

import torch


def refuse_a_wrong_credit_func(given: object, has_its_own: bool, trainer: str) -> None:
    """
    Raise ValueError for a `credit_func` that cannot be used.

    Args:
        given:
            What the user passed.
        has_its_own (`bool`):
            Whether the trainer is a method with a credit function of its own.
        trainer (`str`):
            Name of the trainer, for the message.
    """
    if has_its_own and given is not None:
        raise ValueError(
            f"`credit_func` must be None, got a function: {trainer} has its own credit function. Use "
            "TokenCreditTrainer with yours."
        )
    if not has_its_own and not callable(given):
        raise ValueError(
            f"`credit_func` must be a function from a tempo_trl.Batch to advantages, got {given!r}. Pass "
            f"{trainer}(..., credit_func=your_function)."
        )


def refuse_a_state_that_cannot_be_loaded(credit_func: Callable, name: str) -> None:
    """
    Raise ValueError if a checkpoint could not be read with the state of a credit function, instead of at a resume.

    Args:
        credit_func (`Callable`):
            The credit function, after its first update.
        name (`str`):
            Its name, for the message.
    """
    if not hasattr(credit_func, "state_dict"):
        return
    file = io.BytesIO()
    torch.save(credit_func.state_dict(), file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"`state_dict()` of `credit_func` {name} must have tensors, numbers and strings, in lists, tuples and "
            f"dicts: a resumed run reads nothing else from a checkpoint. Got {_refused_type(error)}. Convert NumPy "
            "numbers with float(), arrays with torch.from_numpy, and other objects to these types."
        ) from error


def _refused_type(error: pickle.UnpicklingError) -> str:
    """The type that torch names in its error."""
    named = re.search(r"Unsupported (?:global: GLOBAL|class) (\S+)", str(error))
    return named[1] if named else "another type"


def refuse_missing_span_functions(functions: list, trainer: str) -> None:
    """
    Raise ValueError if a method that reads criteria has no function that judges any.

    Args:
        functions (`list`):
            The `span_reward_funcs`.
        trainer (`str`):
            Name of the trainer, for the message.
    """
    if not functions:
        raise ValueError(
            "`span_reward_funcs` must be a function, or a list of functions, that return lists of SpanReward; got "
            f"none. Pass {trainer}(..., span_reward_funcs=your_function), or use TRL's GRPOTrainer for rewards "
            "without a place."
        )


READERS = {
    "step_reward_funcs": "GiGPOTrainer, HGPOTrainer, AnchorBaselineTrainer, or TokenCreditTrainer with a function "
    "that reads `batch.step_rewards`",
    "span_reward_funcs": "SpanCreditTrainer, or TokenCreditTrainer with a function that reads `batch.criteria`",
}


def checked_functions(argument: str, given: list | Callable | str | None, are_read: bool, trainer: str) -> list:
    """
    The functions of `step_reward_funcs` or `span_reward_funcs` as a list.

    Args:
        argument (`str`):
            Name of the argument.
        given:
            What the user passed: one function or several.
        are_read (`bool`):
            Whether the trainer's credit may depend on them.
        trainer (`str`):
            Name of the trainer, for the message.

    Raises:
        ValueError: if there are any, and they would not be used, or one cannot be called.
    """
    functions = given if isinstance(given, list) else [] if given is None else [given]
    if functions and not are_read:
        raise ValueError(
            f"`{argument}` must be None, got {len(functions)}: {trainer} would not use them. Use {READERS[argument]}."
        )
    if argument == "span_reward_funcs" and not all(map(callable, functions)):
        wrong = next(function for function in functions if not callable(function))
        raise ValueError(f"`{argument}` must be functions that return SpanReward, got {wrong!r}.")
    return functions
