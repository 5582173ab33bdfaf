"""What a user may pass as `credit_func`, and what its state may hold."""

import io
import pickle
from functools import partial

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
    if not has_its_own and (not callable(given) or isinstance(given, type)):
        raise ValueError(
            f"`credit_func` must be a function from a tempo_trl.Batch to advantages, or an object of a class with "
            f"`__call__`, got {given!r}. Pass {trainer}(..., credit_func=your_function)."
        )
    inner = given.func if isinstance(given, partial) else given
    learner = getattr(inner, "__self__", inner)
    if hasattr(learner, "update") and not hasattr(given, "update"):
        raise ValueError(
            f"`credit_func` is a method or a partial of {learner!r}, whose `update` would not be called. Pass the "
            "object itself, with its credit in `__call__`."
        )


def refuse_a_state_that_would_be_lost(learned: object, label: str) -> None:
    """Raise ValueError for what has `update`, or one half of a state, without both halves."""
    missing = [name for name in ("state_dict", "load_state_dict") if not hasattr(learned, name)]
    if len(missing) == 1 or (missing and hasattr(learned, "update")):
        raise ValueError(
            f"{label} has no {' and no '.join(missing)}, expected both `state_dict()` and `load_state_dict(state)`: a "
            "resumed run would lose what it learned. Add what is missing."
        )


def refuse_a_state_that_cannot_be_loaded(learned: object, label: str) -> None:
    """
    Raise ValueError if a checkpoint could not be read with the state of what learns, instead of at a resume.

    Args:
        learned (`object`):
            What learns, after its first batch.
        label (`str`):
            Its name in the message.
    """
    if not hasattr(learned, "state_dict"):
        return
    file = io.BytesIO()
    torch.save(learned.state_dict(), file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"`state_dict()` of {label} must have tensors, numbers and strings, in lists, tuples and "
            "dicts: a resumed run reads nothing else from a checkpoint. Convert NumPy numbers with float(), arrays "
            "with torch.from_numpy, and other objects to these types."
        ) from error
