"""Temporary replacement of a trainer's attributes: the one way in which this package changes a phase of TRL's loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

MISSING = object()


@contextmanager
def replaced(target: object, **attributes: Any) -> Iterator[None]:
    """
    Set attributes of an object inside the block, and restore them at its end, also after an error.

    An attribute that the object inherits from its class, such as a method, is inherited again afterwards.

    Args:
        target (`object`):
            The object.
        attributes:
            New values by name. Each attribute must exist already.

    Raises:
        AttributeError: if the object has no such attribute.
    """
    for name in attributes:
        getattr(target, name)
    before = {name: vars(target).get(name, MISSING) for name in attributes}
    vars(target).update(attributes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is MISSING:
                delattr(target, name)
            else:
                setattr(target, name, value)


class Call(NamedTuple):
    """A call of a method: its positional arguments and its result."""

    arguments: tuple
    result: Any


@contextmanager
def recorded_calls(target: object, *names: str) -> Iterator[dict[str, list[Call]]]:
    """Records the calls of an object's methods inside the block, by name and in order."""
    calls = {name: [] for name in names}

    def recording(name: str, method: Callable) -> Callable:
        def call(*args, **kwargs):
            result = method(*args, **kwargs)
            calls[name].append(Call(args, result))
            return result

        return call

    with replaced(target, **{name: recording(name, getattr(target, name)) for name in names}):
        yield calls
