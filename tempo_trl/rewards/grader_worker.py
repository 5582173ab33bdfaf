"""The child process of `grader.py`: compares answers until its stdin closes.

It reads one JSON line `[gold, answer]` at a time and writes true, false, or null for undecided; with the argument
`json_schema`, a JSON schema and a value, and what is wrong with it. An error that nobody expected ends the process.
The limit is the CPU time of this process, not wall time, so that verdicts do not depend on other load of the machine.
"""

import contextlib
import json
import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

# The function that compares, by the worker's argument, and a first request: it imports sympy and builds the parser's
# tables, and the first answer must not pay for that.
FUNCTIONS = {
    "math_reward": ("math_equality", "is_equal", ["x", "y"]),
    "json_schema": ("schema_errors", "schema_errors", ["{}", "{}"]),
}
# Per comparison. Of the 12,500 golds of MATH the slowest took 0.07 s.
CPU_SECONDS = 3.0
# After it the kernel ends the process, because no Python handler runs during C code.
MOST_CPU_SECONDS = CPU_SECONDS + 2.0
# A power tower requests petabytes. Fail long before, because training needs the memory.
MEMORY_BYTES = 4 * 2**30


class OutOfTime(BaseException):
    """The CPU time of a comparison is used up. A BaseException, which sympy does not catch."""


def bounded(function: Callable[..., Any], *request: str) -> Any:
    """What a function returns; None if time, memory or the stack runs out."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, 0.1)  # repeated, because a destructor may swallow the first
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_SECONDS)
    try:
        return function(*request)
    except (OutOfTime, MemoryError, RecursionError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def limit_memory() -> None:
    """Let allocations beyond `MEMORY_BYTES` fail with MemoryError."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit; the CPU time is limited there, too
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def give_up(signum: int, frame: object) -> None:
    """Handle SIGPROF."""
    raise OutOfTime


def main(reward: str = "math_reward") -> None:
    """Answer each line of stdin."""
    limit_memory()
    replies, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no reply
    module, name, first = FUNCTIONS[reward]
    function = getattr(import_module(f"tempo_trl.rewards.{module}"), name)
    function(*first)
    signal.signal(signal.SIGPROF, give_up)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    for request in sys.stdin:
        print(json.dumps(bounded(function, *json.loads(request))), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
