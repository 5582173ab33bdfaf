"""Python processes that need not import torch, transformers and TRL: they are forked from one that has.

The fixture `quick_python` (see conftest) lets `sys.executable` be a stand-in, in which `python -m MODULE`,
`python -c CODE` and `python FILE` take a second instead of ten, whoever starts them, with their own arguments,
environment, folder, files, signals and exit status. Take it where a test starts processes that train; not where it is
about how the package is imported, or about variables of the environment that libraries read when they are imported.
"""

import fcntl
import os
import re
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from . import client

REPOSITORY = Path(__file__).parents[2]
PYTHON = sys.executable  # the real interpreter, before a fixture puts the stand-in in its place


@cache
def quick_python() -> str:
    """Path of the stand-in. Its server is the same for all workers of pytest, and ends with pytest."""
    run, pytest = os.environ.get("PYTEST_XDIST_TESTRUNUID"), os.getppid()
    if run is None:
        run = pytest = os.getpid()
    folder = Path(tempfile.gettempdir(), f"quick-python-{str(run)[:8]}")  # short: so is the path of a socket
    folder.mkdir(exist_ok=True)
    path, socket = folder / "python", folder / "socket"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first starts it, the others wait for it
        if not socket.exists():
            write_client(path, socket)
            start_server(folder, pytest)
    return str(path)


def write_client(path: Path, socket: Path) -> None:
    own = Path(client.__file__).read_text()
    for name, value in {"SOCKET": str(socket), "PYTHON": PYTHON}.items():
        own = re.sub(rf'^{name} = ""$', f"{name} = {value!r}", own, flags=re.MULTILINE)
    path.write_text(f"#!{PYTHON} -SE\n{own}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def start_server(folder: Path, pytest: int) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # no thread survives a fork
    command = [PYTHON, "-m", f"{__name__}.server", str(folder), str(pytest)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    server = subprocess.Popen(command, cwd=REPOSITORY, env=environment, start_new_session=True, **pipes)
    while (line := server.stdout.readline()) != b"ready\n":  # imports may print
        assert line, "the server of quick Python processes did not start"
