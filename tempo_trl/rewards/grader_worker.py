r"""The child process of `grader.py`: compares answers with math-verify until its stdin closes.

It writes `ready`, then reads one JSON line `[gold, answer]` at a time and writes `true` or `false`. It is run by its
path and imports nothing of tempo_trl: neither an uninstalled checkout nor a file of the user's can get in its way.
Whatever escapes math-verify ends the process, and the parent counts that answer as wrong.
"""

import contextlib
import json
import os
import resource
import signal
import sys
from typing import TextIO

from math_verify import parse, verify

# Two parses and one comparison stay below the parent's ITEM_SECONDS, so that an answer which is slow in Python costs
# no restart. Of 750 MATH golds the slowest took 0.07 s.
STEP_SECONDS = 1
# A power tower asks for petabytes; a training machine has better use even for the gigabytes before the refusal.
MEMORY_BYTES = 4 * 2**30
# Only an orphan gets this far: while the parent lives, it kills sooner.
CPU_SECONDS = 20


def is_equal(gold: str, answer: str) -> bool:
    """Whether math-verify takes the answer for the gold, both of them boxed, with its default configuration."""
    parsed = [parse(rf"\boxed{{{text}}}", parsing_timeout=STEP_SECONDS) for text in (gold, answer)]
    return verify(*parsed, timeout_seconds=STEP_SECONDS)


def limit_memory() -> None:
    """Let allocations beyond `MEMORY_BYTES` fail with MemoryError."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit; the parent's deadline remains
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def take_stdout() -> TextIO:
    """The parent's pipe, as a file of our own: what a library prints goes to stderr instead of into the protocol."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def main() -> None:
    """Announce `ready`, then answer each line of stdin."""
    limit_memory()
    replies = take_stdout()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    is_equal("1", "2")  # builds the parser's tables: the first answer must not pay for them
    print("ready", file=replies)
    for request in sys.stdin:
        # SIGPROF ends the process even inside C code, where no Python handler runs and no closed stdin is noticed.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        print(json.dumps(is_equal(*json.loads(request))), file=replies)
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
