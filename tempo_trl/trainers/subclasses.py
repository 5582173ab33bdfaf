"""What builds or extends a trainer sees of it: arguments, warnings, and advantages that have one number per token."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import torch

PACKAGE = str(Path(__file__).parents[1])
PACKAGE_NAME = __name__.split(".")[0]
SCORE = "_generate_and_score_completions"
ASSIGNED = "assigned_advantages"  # in TRL's batch, until the subclass has returned it


def signature_without(cls: type, unread: set[str]) -> inspect.Signature:
    """The signature of a class, without arguments that it refuses."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return inspect.Signature([own for own in parameters if own.name not in unread])


def refuse_unknown_arguments(cls: type, keywords: dict) -> None:
    """Raise TypeError in the name of `cls` for a keyword that its constructor does not have."""
    parameters = inspect.signature(cls.__init__).parameters
    unknown = [name for name in keywords if name not in parameters]
    if unknown and not any(known.kind is known.VAR_KEYWORD for known in parameters.values()):
        near = get_close_matches(unknown[0], parameters, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else " A field of the configuration belongs in `args`."
        raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {unknown[0]!r}.{hint}")


@contextmanager
def warnings_at_the_caller() -> Iterator[None]:
    """Warnings of the block that point into this package, as TRL's about our `super().__init__`, point to its user."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        finally:
            frame = sys._getframe(2)
            while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
                frame = frame.f_back
    for warning in caught:
        ours = warning.filename.startswith(PACKAGE)
        place = (frame.f_code.co_filename, frame.f_lineno) if ours else (warning.filename, warning.lineno)
        warnings.warn_explicit(warning.message, warning.category, *place)


def watch_columns(cls: type) -> None:
    """Wrap a user's `_generate_and_score_completions`, a mixin's as well, so that factors per column are found."""
    method = getattr(cls, SCORE)
    if method.__module__.split(".")[0] != PACKAGE_NAME and not getattr(method, "is_watched", False):
        setattr(cls, SCORE, _watched(method, cls.__name__))
        cls._watches_columns = True


def keep_assigned(output: dict) -> None:
    """Keep the advantages for [`watch_columns`] where a number per completion also fits the tokens: B = T."""
    advantages = output["advantages"]
    if advantages.ndim == 2 and advantages.shape[0] == advantages.shape[1]:
        output[ASSIGNED] = advantages.clone()


def _watched(method: Callable, name: str) -> Callable:
    @functools.wraps(method)
    def score(self, inputs):
        output = method(self, inputs)
        if getattr(type(self), SCORE) is not score:  # a class that derives from this one returns it later
            return output
        assigned = output.pop(ASSIGNED, None)
        if assigned is not None:
            _refuse_factors_of_columns(output["advantages"], assigned, name)
        return output

    score.is_watched = True
    return score


def _refuse_factors_of_columns(advantages: torch.Tensor, assigned: torch.Tensor, name: str) -> None:
    """Raise ValueError if each column of square advantages was changed by a number of its own, and columns differ."""
    if advantages.shape != assigned.shape or torch.equal(advantages, assigned):
        return
    factors = torch.where(assigned == 0, torch.nan, advantages / assigned)
    for change in (factors, advantages - assigned):
        of_column = change.nanmean(dim=0)
        same = ((change - of_column).abs() <= 1e-5 * of_column.abs() + 1e-7) | change.isnan()
        several = of_column[~of_column.isnan()]
        if same.all() and len(several) > 1 and not torch.allclose(several, several[0]):
            raise ValueError(
                f"{name}.{SCORE} changed `advantages` by a number per column, expected one per row: advantages are "
                f"(B, T) = {tuple(advantages.shape)} here, one per token, and a tensor of shape ({len(advantages)},) "
                "is read as one number per token. Multiply by `weights[:, None]`."
            )
