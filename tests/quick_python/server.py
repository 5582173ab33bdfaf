"""The process that has imported everything, and forks: `python -m tests.quick_python.server FOLDER PROCESS`.

It forks a guard for each client. The guard forks the process that runs, passes signals on to it, tells how it ended,
and kills it with what it started if the client is gone. The server ends with the process of that number, and removes
its folder.
"""

import atexit
import contextlib
import fcntl
import importlib
import json
import multiprocessing
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import types
import weakref
from importlib.machinery import PathFinder
from typing import NoReturn

from ..settled import settle

# ZeRO's optimizers import Muon, which is compiled where it is defined: this imports the compiler. The processes of a
# vLLM server import its modules, in the environment that has them.
LIBRARIES = (
    "deepspeed.runtime.zero.muon.original_muon",
    "peft",
    "pytest",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
)
MOST_FILES = 253  # that one message carries


def serve(folder: str, process: int) -> None:
    """Answer clients until a process ends."""
    ended = os.pidfd_open(process)
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards leave no zombies
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.join(folder, "socket"))
    listening.listen(64)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening, ended], [], [])
        if ended in ready:
            shutil.rmtree(folder)
            return
        client, _ = listening.accept()
        if not os.fork():
            listening.close()
            guard(client)
        client.close()


def preload() -> None:
    """The libraries. Modules of the tests are imported by each process: some read its environment."""
    import tempo_trl
    import tempo_trl.launch.train

    for name in tempo_trl.__all__:
        getattr(tempo_trl, name)
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    if gloo := sys.modules.get("deepspeed.comm.torch"):  # minutes of g++, for the all-reduce of inference alone
        gloo.build_shm_op = lambda: None
    for own in weakref.finalize._registry:  # a client that ends has nothing of this process to clean up
        own.atexit = False
    settle()


def guard(client: socket.socket) -> NoReturn:
    """Run what a client asks for in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(client, 8, MOST_FILES)
    request = json.loads(client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    runner = os.fork()
    with contextlib.suppress(OSError):  # in both, because either may come first; and it may have ended
        os.setpgid(runner, runner)
    if not runner:
        client.close()
        take(files, request.pop("files"))
        run(**request)
    for file in (0, 1, 2, *files):
        os.close(file)
    ended = os.pidfd_open(runner)
    while True:
        ready, _, _ = select.select([client, ended], [], [])
        if ended in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1])
            client.sendall(status.to_bytes(4, "big", signed=True))
            os._exit(0)
        if not (number := client.recv(1)):
            os.killpg(runner, signal.SIGKILL)
            os._exit(0)
        os.kill(runner, number[0])


def take(files: list[int], numbers: list[int]) -> None:
    """Give the files of a client the numbers that they have there."""
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, 2 * MOST_FILES) for file in files]  # away from the numbers
    for file in files:
        os.close(file)
    for file, number in zip(aside, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def run(words: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """Be the interpreter that was asked for, to its end."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    encoding, _, errors = environment.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False, encoding=encoding, errors=errors or "strict")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, encoding=encoding, errors="backslashreplace")  # noqa: SIM115
    first = {"-m": folder, "-c": ""}.get(words[0], os.path.dirname(os.path.abspath(words[0])))
    sys.path[:1] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    forget_other_copies(sys.path)
    status = 1
    try:
        interpret(words)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # torch's names the rank
    finally:  # but for taking all modules apart, which would copy the memory that is shared with the server
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)


def forget_other_copies(path: list[str]) -> None:
    """Forget the tests, and the package if another copy of it comes first on this path."""
    others = {"tests"}
    found = PathFinder.find_spec("tempo_trl", path)
    if found and found.origin != sys.modules["tempo_trl"].__file__:
        others.add("tempo_trl")
    for name in [name for name in sys.modules if name.partition(".")[0] in others]:
        del sys.modules[name]


def interpret(words: list[str]) -> None:
    """Run a module, code or a file with its arguments."""
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(words[1], vars(sys.modules["__main__"]))
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    folder, process = sys.argv[1:]
    sys.executable = os.path.join(folder, "python")
    multiprocessing.set_executable(sys.executable)
    serve(folder, int(process))
