"""Errors of the user's functions. They are kept until all ranks meet, because the others wait for this rank's rows."""

from collections.abc import Iterator
from contextlib import contextmanager


class Failures:
    """
    The first error of the user's functions on a batch.

    Args:
        rank (`int`):
            This rank, for the message.
    """

    def __init__(self, rank: int):
        self._rank = rank
        self.cause: Exception | None = None
        self.first: tuple[str, bool] | None = None  # a message, and whether a function returned something invalid

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Ends the block at an error, and keeps the error. `name` is what the user calls the function."""
        try:
            yield
        except Exception as error:
            if self.cause is None:
                invalid = isinstance(error, ValueError)
                what = f"failed: {error}" if invalid else f"raised {type(error).__name__}: {error}"
                self.cause, self.first = error, (f"{name} {what} (on rank {self._rank})", invalid)
