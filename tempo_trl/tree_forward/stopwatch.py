"""Seconds that a device worked, without waiting for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """
    Adds up the seconds that a device takes for blocks of work.

    A GPU works through a queue: the clock of the host would measure how long it takes to fill it. So events are put
    into the queue, around the work, and read when the sum is asked for. On a CPU it is the host's clock.

    Args:
        device (`torch.device`):
            Where the work is done.
    """

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._spans: list[tuple] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the work of the block. A block that raises an error is not counted."""
        begin = self._mark()
        yield
        self._spans.append((begin, self._mark()))

    def pop(self) -> float:
        """The seconds since the last `pop`; waits for the work that they measure."""
        spans, self._spans = self._spans, []
        if not self._on_gpu:
            return sum(end - begin for begin, end in spans)
        if spans:
            spans[-1][1].synchronize()
        return sum(begin.elapsed_time(end) for begin, end in spans) / 1000  # of milliseconds

    def _mark(self):
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
