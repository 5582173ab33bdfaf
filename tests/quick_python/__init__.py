"""Python processes that need not import torch, transformers and TRL: they are forked from one that has.

The fixture `quick_python` (see conftest) lets `sys.executable` be a stand-in, in which `python -m MODULE`,
`python -c CODE` and `python FILE` take a second instead of ten, whoever starts them, with their own arguments,
environment, folder, files, signals and exit status. Take it where a test starts processes that train; not where it is
about how the package is imported, or about variables of the environment that libraries read when they are imported.
"""

import atexit
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


@cache  # one for all tests of this process
def quick_python() -> str:
    """Path of the stand-in. Its server ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="quick-python-")
    path, socket = Path(folder.name, "python"), Path(folder.name, "socket")
    own = Path(client.__file__).read_text()
    for name, value in {"SOCKET": str(socket), "PYTHON": sys.executable}.items():
        own = re.sub(rf'^{name} = ""$', f"{name} = {value!r}", own, flags=re.MULTILINE)
    path.write_text(f"#!{sys.executable} -SE\n{own}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # no thread survives a fork
    command = [sys.executable, "-m", f"{__name__}.server", str(socket), str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen(command, cwd=REPOSITORY, env=environment, start_new_session=True, **pipes)
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    while (line := server.stdout.readline()) != b"ready\n":  # imports may print
        assert line, "the server of quick Python processes did not start"
    return str(path)
