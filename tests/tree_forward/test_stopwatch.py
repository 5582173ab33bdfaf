"""The time of a device's work, not of its queue."""

import pytest
import torch

from tempo_trl.tree_forward import stopwatch
from tempo_trl.tree_forward.stopwatch import Stopwatch


class Queue:
    """A GPU's queue: an event is read only once somebody waited for it."""

    def __init__(self):
        self.now, self.waits = 0.0, 0

    def event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, queue):
        self.queue = queue

    def record(self):
        self.at = self.queue.now

    def synchronize(self):
        self.queue.waits += 1

    def elapsed_time(self, end):
        assert self.queue.waits, "read before the work was done"
        return 1000 * (end.at - self.at)


def test_on_a_gpu_it_counts_the_queues_time_and_waits_once_when_the_sum_is_asked_for(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(torch.cuda, "Event", queue.event)
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: pytest.fail("the clock of the host"))
    watch = Stopwatch(torch.device("cuda", 0))
    for seconds in (0.5, 0.25):
        with watch.running():
            queue.now += seconds
        queue.now += 10.0  # of other work
    assert queue.waits == 0
    assert watch.pop() == pytest.approx(0.75)
    assert queue.waits == 1
    assert watch.pop() == 0.0
