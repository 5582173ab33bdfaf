"""A quick process is what Python's own would be, seen from outside."""

import os
import signal
import subprocess
import sys

import pytest

from ..processes import is_living, wait_until

SLEEPS = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture(params=["quick", "real"])
def python(request) -> str:
    """Each theorem holds for the real interpreter, too."""
    if request.param == "quick":
        request.getfixturevalue("quick_python")
    return sys.executable


def done(python: str, *words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=300, **options)


def started(python: str, code: str) -> subprocess.Popen:
    process = subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_it_has_its_own_arguments_folder_environment_and_files(python, tmp_path):
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ['OWN'], input()); print('err', file=sys.stderr)"
    found = done(python, "-c", code, "a", "b c", cwd=tmp_path, env=os.environ | {"OWN": "1"}, input="typed\n")
    assert found.stdout == f"['-c', 'a', 'b c'] {tmp_path} 1 typed\n"
    assert found.stderr.endswith("err\n")


def test_packages_of_ones_own_come_before_those_that_are_installed(python, tmp_path):
    for package in ("tempo_trl", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"print('own {package}')")
    assert done(python, "-c", "import tempo_trl, tests", cwd=tmp_path).stdout == "own tempo_trl\nown tests\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('why')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(5)", 5),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import atexit; atexit.register(print, 'last')", 0),
    ],
)
def test_it_ends_as_it_should(code, status, python):
    found = done(python, "-c", code)
    assert found.returncode == status
    assert {"1 / 0": "ZeroDivisionError", "raise SystemExit('why')": "why"}.get(code, "") in found.stderr
    assert found.stdout == ("last\n" if "atexit" in code else "")


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_signals_reach_it(python):
    heeds = "import time\ntry:\n print('ready', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: exit(7)"
    process = started(python, heeds)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 7
    process = started(python, SLEEPS)
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM


def test_it_is_killed_with_what_it_runs(quick_python):
    code = "import os, time; print('ready', flush=True); print(os.getpid(), flush=True); time.sleep(600)"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    process = started(sys.executable, nested)
    runner = int(process.stdout.readline())
    process.kill()
    wait_until(lambda: not is_living(runner))
