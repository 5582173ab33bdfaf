r"""math-verify in a child process, which is replaced when it hangs or dies.

math-verify ends a comparison such as `\boxed{2^{2^{2^{49}}}}` with SIGALRM. That works in the main thread only, while
a trainer may call rewards from any thread. It does not interrupt C code (sympy on gmpy2). And it measures wall time,
so that right answers would fail on a busy machine. The child limits its own CPU time instead. It is started with the
first comparison and reused. It is a separate program, not a `multiprocessing` process: spawn would import the user's
script again, and fork is unsafe with threads and CUDA.
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
from typing import NamedTuple

WORKER = Path(__file__).with_name("grader_worker.py")

# CPU time attributed to a child that died: the worker's own limits end a comparison that hangs.
LOST_CPU_SECONDS = 5.0
# Wall time for a child to start (0.4 s on an idle machine) and to reply (5 s on an idle core). These limits only end
# the wait for a stopped or lost child, and are generous enough for a busy machine.
START_SECONDS, REPLY_SECONDS = 120.0, 300.0
# Two such texts, at most 12 bytes of JSON per character, fit into a pipe's 64 KiB, so writing never blocks. The
# answers of MATH are less than a tenth as long.
MAX_ANSWER_CHARS = 2000


class Verdict(NamedTuple):
    """Whether an answer equals the gold (None if undecided), and the CPU seconds of the comparison."""

    equal: bool | None
    cpu_seconds: float


class Grader:
    """Compares answers in one child process, from any thread, and replaces it when it hangs or dies."""

    def __init__(self):
        self._lock = threading.Lock()
        self._process = None
        self._ready = False

    def compare(self, gold: str, answer: str) -> Verdict:
        """
        The verdict on an answer; undecided if the child ran out of time or memory, died, or does not start.

        Args:
            gold, answer (`str`):
                LaTeX without the box, at most `MAX_ANSWER_CHARS` characters each.
        """
        with self._lock:
            return self._ask(gold, answer) if self._wait_ready() else Verdict(None, 0.0)

    def close(self) -> None:
        """Kill the child, if there is one. The next comparison starts another."""
        process, self._process, self._ready = self._process, None, False
        if process is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def disown(self) -> None:
        """In a forked process: leave the child, its pipes and the lock to the parent, whose threads may hold it."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
        self.__init__()

    def _wait_ready(self) -> bool:
        """Whether a child is ready. A child that does not become ready is killed."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if self._process is not None and not self._ready:
            self._ready = self._read_line(START_SECONDS) is not None
            if not self._ready:
                self.close()
        return self._ready

    def _start(self) -> None:
        """Start a child. If the machine does not allow it, there is none."""
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

    def _ask(self, gold: str, answer: str) -> Verdict:
        """The child's verdict. A child without a verdict is killed, also after an interrupt."""
        reply = None
        try:
            # JSON escapes all but ASCII, lone surrogates and control characters too: any str passes the pipe.
            self._process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            reply = self._read_line(REPLY_SECONDS)
        except BrokenPipeError:
            pass  # it died: no reply
        finally:
            if reply is None:
                self.close()
        return Verdict(None, LOST_CPU_SECONDS) if reply is None else Verdict(*json.loads(reply))

    def _read_line(self, seconds: float) -> bytes | None:
        """The child's next line; None if it dies or does not write one in time."""
        line, deadline = b"", time.monotonic() + seconds
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
