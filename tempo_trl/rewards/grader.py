r"""The third rule of grading: the comparison runs in a child process with limits, and what it cannot decide is None.

math-verify ends a comparison such as `\boxed{2^{2^{2^{49}}}}` with SIGALRM. That works in the main thread only, while
a trainer may call rewards from any thread. It does not interrupt C code (sympy on gmpy2). And it measures wall time,
so that right answers would fail on a busy machine. The child limits its own CPU time instead. It is started with the
first comparison and reused. It is a separate program, not a `multiprocessing` process: spawn would import the user's
script again, and fork is unsafe with threads and CUDA.
"""

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

COMMAND = ["-P", "-m", "tempo_trl.rewards.grader_worker"]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # OMP for a NumPy with MKL
PACKAGE = Path(__file__).parents[2]  # on the child's path: the package may be an uninstalled checkout

# Wall time for a reply, with the start of the child: 6 s on an idle core. It only ends the wait for a stopped or lost
# child, and is generous enough for a busy machine.
REPLY_SECONDS = 300.0
# Two such texts, at most 12 bytes of JSON per character, fit into a pipe's 64 KiB, so writing them never blocks. That
# of a longer schema ends with `REPLY_SECONDS`. The answers of MATH are less than a tenth as long.
MAX_ANSWER_CHARS = 2000
# Why an answer is undecided.
TOO_MUCH = "it takes too much time (a schema may have a pattern that backtracks) or memory, or is nested too deep"
FAILED = f"its child failed; if at the start, `OMP_NUM_THREADS=1 python {' '.join(COMMAND)} %s </dev/null` shows why"


class Grader:
    """
    Compares answers in one child process, from any thread, and replaces it when it hangs or dies.

    Args:
        reward (`str`, *optional*): `"math_reward"` compares with golds, `"json_schema"` with JSON schemas.
    """

    def __init__(self, reward: str = "math_reward"):
        self._reward = reward
        self._lock = threading.Lock()
        self._process = None

    def compare(self, gold: str, *answer: str) -> Any:
        """
        Whether an answer equals the gold, or what [`~tempo_trl.rewards.schema_errors.schema_errors`] says of it; None,
        with one warning, if the child ran out of time, memory or its stack, died, or does not start.

        Args:
            gold, answer (`str`):
                LaTeX without the box, at most `MAX_ANSWER_CHARS` characters each; a schema, and JSON or nothing.
        """
        # JSON escapes all but ASCII, lone surrogates and control characters too: any str passes the pipe.
        question = json.dumps([gold, *answer]).encode() + b"\n"
        with self._lock:
            reply, status = b"", 0
            try:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                reply = self._ask(question)
            except OSError:
                pass  # the machine does not allow a child, or it died: no reply
            finally:
                if not reply:  # also after an interrupt, whose reply would answer the next question
                    status = self.close() or 0
        verdict = json.loads(reply) if reply else None
        if verdict is None:
            is_too_much = reply or status < 0  # it gave up, or a signal ended it
            undecided(self._reward, TOO_MUCH if is_too_much else FAILED % self._reward)
        return verdict

    def close(self) -> int | None:
        """Kill the child, if there is one, and return its exit status. The next comparison starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            return process.wait()

    def _start(self) -> None:
        self.close()
        path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND, self._reward],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # sympy walks sets in hash order: with random hashes a borderline reward could differ between runs. NumPy's
            # and SciPy's threads, one per core, would take 40 MB of address space each, beyond the child's limit.
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **ONE_THREAD},
        )

    def _ask(self, question: bytes) -> bytes:
        """The child's reply; empty if it dies, also because it does not reply in time."""
        timer = threading.Timer(REPLY_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            self._process.stdin.write(question)
            return self._process.stdout.readline()
        finally:
            timer.cancel()


@cache
def undecided(reward: str, why: str) -> None:
    """Warn once in a process of each reason."""
    logger.warning(f"{reward} did not judge an answer (its reward is None): {why}. This warning is given once.")


shared_grader, schema_grader = Grader(), Grader("json_schema")
for _grader in (shared_grader, schema_grader):
    atexit.register(_grader.close)
    # A forked process has its own child and lock: threads of the parent may hold the parent's.
    os.register_at_fork(after_in_child=partial(_grader.__init__, _grader._reward))
