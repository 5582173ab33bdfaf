"""Temporary replacement of a trainer's attributes: the one way in which this package changes a phase of TRL's loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
