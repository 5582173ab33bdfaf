"""A process of tests that has imported its libraries: what they would do again in each of hundreds of tiny runs."""

import gc
import importlib.metadata
from functools import cache


def settle() -> None:
    """
    Keep what has been imported out of the collection of garbage, which every run of a trainer starts: it takes half of
    a tiny run's time, and a forked rank copies all of that memory. And read the metadata of a package, which
    accelerate asks for dozens of times per run, only once.
    """
    importlib.metadata.metadata = cache(importlib.metadata.metadata)
    gc.collect()
    gc.freeze()
