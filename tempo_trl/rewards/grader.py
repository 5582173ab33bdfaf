r"""A math-verify that cannot hang: the comparison runs in a child process, which is killed when it takes too long.

math-verify ends a comparison such as `\boxed{2^{2^{2^{49}}}}` with SIGALRM. That works in the main thread only, while
a trainer may call its rewards from any, and it does not reach into C code (sympy on gmpy2). The child is started with
the first question and kept. It is a program of its own, not a `multiprocessing` one: spawn would import the user's
script again, and fork is unsafe next to threads and CUDA.
"""

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path

WORKER = Path(__file__).with_name("grader_worker.py")

# The worker gives a slow answer up by itself after 1 s a step, three steps in all; what still runs then is stuck.
ITEM_SECONDS = 4.0
# A question of two such texts, at most 12 bytes of JSON a character, fits into a pipe's 64 KiB: writing never blocks.
# No answer of MATH is a tenth as long.
MAX_ANSWER_CHARS = 2000


class Grader:
    """Asks one child process, from any thread, whether two answers are equal; replaces it when it hangs or dies."""

    def __init__(self):
        self._lock = threading.Lock()
        self._process = None
        self._ready = False

    def is_equal(self, gold: str, answer: str, deadline: float) -> bool | None:
        """Whether `answer` equals `gold`; False if the child hangs or dies over it, None if it was never asked.

        Args:
            gold, answer: LaTeX without the box, at most `MAX_ANSWER_CHARS` characters each.
            deadline: `time.monotonic()` seconds. A question put before it gets its full `ITEM_SECONDS`; one that
                cannot be (other threads are asking, the child is slow to start) is given up.
        """
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return None
        try:
            return self._ask(gold, answer) if self._wait_ready(deadline) else None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kill the child, if there is one. The next question starts another."""
        process, self._process, self._ready = self._process, None, False
        if process is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def disown(self) -> None:
        """In a forked process: leave the child, its pipes and a lock that another thread may hold to the parent."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
        self.__init__()

    def _wait_ready(self, deadline: float) -> bool:
        """Whether a child waits for a question before the deadline. One that is slow to start is kept for the next."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if self._process is not None and not self._ready:
            self._ready = self._read_line(deadline) is not None
        return self._ready and time.monotonic() < deadline

    def _start(self) -> None:
        """Start a child; none is left where the machine refuses."""
        self.close()
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                # sympy walks sets in hash order: with random hashes a borderline reward could differ between runs.
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )

    def _ask(self, gold: str, answer: str) -> bool:
        """The child's verdict; a child that gives none is killed, and so is one we are interrupted over."""
        reply = None
        try:
            # JSON escapes all but ASCII, lone surrogates and control characters too: any str passes the pipe.
            self._process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            reply = self._read_line(time.monotonic() + ITEM_SECONDS)
        except BrokenPipeError:
            pass  # it died: no reply
        finally:
            if reply is None:
                self.close()
        return reply == b"true\n"

    def _read_line(self, deadline: float) -> bytes | None:
        """The child's next line; None if it dies or stays silent until the deadline."""
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = self._process.stdout.read(4096)
                if not chunk:
                    return None
                line += chunk
        return line


shared_grader = Grader()
atexit.register(shared_grader.close)
os.register_at_fork(after_in_child=shared_grader.disown)
