"""Measure the time that a device spends on blocks of work, without synchronizing after each."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """
    Sums the seconds that a device spends on blocks of work.

    A GPU executes a queue asynchronously, so the host's clock would only measure how long the host takes to fill it.
    Events are recorded in the queue before and after the work, and read when the sum is requested. On a CPU the host's
    clock is used.

    Args:
        device (`torch.device`):
            The device that does the work.
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
        """The seconds of all blocks since the last `pop`. Waits until their work is done."""
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
