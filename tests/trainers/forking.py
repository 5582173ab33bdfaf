"""Ranks forked from one process that has imported everything: starting them takes a second instead of twenty.

`python -m tests.trainers.forking` reads one run per line, forks its ranks and answers with their exit status. Each
rank is a new process in a new process group, so no state passes from one run to the next.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

from ..settled import settle

REPOSITORY = Path(__file__).parents[2]
HANG = 900  # seconds, half of what gloo waits; runs take a few, and a minute on a busy machine


class Forker:
    """The process that forks, and the pipe to it."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # no thread survives a fork
        command = [sys.executable, "-m", __name__]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, start_new_session=True, **pipes)
        atexit.register(self.end)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def run(self, module: str, arguments: list[str], environments: list[dict[str, str]], printed: Path) -> int:
        """Call `module.main(*arguments)` on a rank per environment; the first exit status that is not 0."""
        run = {"module": module, "arguments": arguments, "environments": environments, "printed": str(printed)}
        self.process.stdin.write(json.dumps(run) + "\n")
        self.process.stdin.flush()
        answered, _, _ = select.select([self.process.stdout], [], [], HANG)
        if not answered:
            self.end()
            forker.cache_clear()
            raise TimeoutError(f"{module} hangs: {printed.read_text()[-5000:]}")
        return int(self.process.stdout.readline())


forker = cache(Forker)  # one for all tests of this process


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # imports print, too
    preload()
    for line in sys.stdin:
        print(status_of(**json.loads(line)), file=answers, flush=True)


def preload() -> None:
    """The libraries. Modules of the tests are imported by each rank: some read its environment."""
    import tempo_trl
    import tempo_trl.launch.train

    for name in tempo_trl.__all__:
        getattr(tempo_trl, name)
    for library in ("deepspeed", "peft"):
        if importlib.util.find_spec(library):
            importlib.import_module(library)
    if gloo := sys.modules.get("deepspeed.comm.torch"):  # minutes of g++, for the all-reduce of inference alone
        gloo.build_shm_op = lambda: None
    settle()


def status_of(module: str, arguments: list[str], environments: list[dict[str, str]], printed: str) -> int:
    ranks = {fork(module, arguments, environment, printed) for environment in environments}
    status = 0
    while ranks:
        ended, how = os.wait()
        ranks.discard(ended)
        if how and not status:
            status = os.waitstatus_to_exitcode(how)
            for rank in ranks:  # as a launcher does
                os.kill(rank, signal.SIGTERM)
    return status


def fork(module: str, arguments: list[str], environment: dict[str, str], printed: str) -> int:
    """Start one rank and return its process id."""
    if child := os.fork():
        return child
    status = 1
    try:
        file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ.update(environment)
        importlib.import_module(module).main(*arguments)
        status = 0
    except BaseException:  # of whatever kind: a rank never returns to the loop of its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
