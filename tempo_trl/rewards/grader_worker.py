r"""The child process of `grader.py`: compares answers with math-verify until its stdin closes.

It writes `ready`, then reads one JSON line `[gold, answer]` at a time and writes `[verdict, CPU seconds]`; the verdict
is null if undecided. It is started by its path and imports nothing of tempo_trl, so that it works in an uninstalled
checkout and beside any file of the user. An error that math-verify does not catch ends the process.

The limit is the CPU time of this process, not wall time, so that verdicts do not depend on other load of the machine.
"""

import contextlib
import json
import math
import os
import resource
import signal
import sys
import time
from itertools import product
from typing import TextIO

from math_verify import parse, verify
from sympy import Basic, FiniteSet, Float, Tuple, log

# Per comparison, with two parses. Of 750 MATH golds the slowest took 0.07 s.
CPU_SECONDS = 3.0
# After it the kernel ends the process, because no Python handler runs during C code.
MOST_CPU_SECONDS = CPU_SECONDS + 2.0
# A power tower requests petabytes. Fail long before, because training needs the memory.
MEMORY_BYTES = 4 * 2**30

DECIMALS, DIGITS = 6, 15  # math-verify's defaults, for numbers of ordinary size
LEAST_DIGITS = 3  # significant digits of a small gold that rounding to decimals must keep


class OutOfTime(BaseException):
    """The CPU time of a comparison is used up. A BaseException, which math-verify does not catch."""


def compare(gold: str, answer: str) -> bool | None:
    """Whether math-verify considers answer and gold equal, both boxed; None if time or memory runs out."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, 0.1)  # repeated, because a destructor may swallow the first
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_SECONDS)
    try:
        return is_equal(gold, answer)
    except (OutOfTime, MemoryError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def is_equal(gold: str, answer: str) -> bool:
    """Whether one parse of the answer equals one of the gold, with math-verify's defaults except for small numbers."""
    golds, answers = (parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))
    return any(verify(*pair, timeout_seconds=None, **precision(pair[0], gold)) for pair in product(golds, answers))


def precision(expression: object, gold: str) -> dict[str, int]:
    r"""Decimals and digits that tell a gold from its neighbours.

    math-verify rounds to a number of decimals, whatever the size of the numbers: with six, `0.0000672` is `0.0000674`
    and `\frac{1}{2^{98}}` is 0.
    """
    decimals, zeros = _decimals(expression, gold), _leading_zeros(expression)
    return {
        "float_rounding": max(DECIMALS, decimals, zeros + 1 + LEAST_DIGITS),
        "numeric_precision": DIGITS + zeros,
    }


def _decimals(expression: object, gold: str) -> int:
    """Decimals that a gold is written with, if it is a decimal number."""
    return len(gold.partition(".")[2]) if isinstance(expression, Float) else 0


def _leading_zeros(expression: object) -> int:
    """Zeros behind the point of the smallest number in a gold: of the gold itself, or of an element."""
    elements = expression.args if isinstance(expression, (Tuple, FiniteSet)) else (expression,)
    sizes = [abs(e.evalf(5)) for e in elements if isinstance(e, Basic) and e.is_number]
    exponents = [math.floor(log(size, 10).evalf(5)) for size in sizes if size.is_finite and size > 0]
    return max(0, -1 - min(exponents, default=0))


def limit_memory() -> None:
    """Let allocations beyond `MEMORY_BYTES` fail with MemoryError."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit; the CPU time is limited there, too
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def take_stdout() -> TextIO:
    """The parent's pipe, as a file of our own: what a library prints goes to stderr instead of into the protocol."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def give_up(signum: int, frame: object) -> None:
    """Handle SIGPROF."""
    raise OutOfTime


def main() -> None:
    """Announce `ready`, then answer each line of stdin."""
    limit_memory()
    replies = take_stdout()
    is_equal("1", "2")  # builds the parser's tables: the first answer must not pay for them
    signal.signal(signal.SIGPROF, give_up)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    print("ready", file=replies)
    for request in sys.stdin:
        started = time.process_time()
        verdict = compare(*json.loads(request))
        print(json.dumps([verdict, time.process_time() - started]), file=replies)


if __name__ == "__main__":
    main()
