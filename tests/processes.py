"""Which processes live. One that ended is a zombie where nobody waits for it, as in containers without an init."""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

HANG = 900  # seconds, for a busy machine


def is_living(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living_in_group(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == group and is_living(pid):
                found.append(pid)
    return found


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
