"""The child process that compares answers: kept, killed, replaced, and never in the way of its parent."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tempo_trl.rewards import grader, math_reward
from tempo_trl.rewards.grader import COMMAND, MAX_ANSWER_CHARS, PACKAGE, Grader, shared_grader

from .answers import ROOT, boxed

# The package exports the function under its module's name.
reward_module = sys.modules["tempo_trl.rewards.math_reward"]


@pytest.fixture
def make_grader(tmp_path, monkeypatch):
    """A grader whose child is the given program, to misbehave on demand."""
    started = []

    def make(program):
        worker = tmp_path / "worker.py"
        worker.write_text(program)
        monkeypatch.setattr(grader, "COMMAND", ["-P", str(worker)])
        started.append(Grader())
        return started[-1]

    yield make
    for each in started:
        each.close()


def test_a_child_that_never_replies_is_killed_and_replaced_and_its_question_stays_open(monkeypatch):
    shared_grader.close()
    assert shared_grader.compare("1", "1.0")
    process = shared_grader._process
    os.kill(process.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(grader, "REPLY_SECONDS", 0.1)
        assert math_reward([boxed(r"\frac36")], [r"\frac12 + 0"]) == [None]
    assert process.returncode == -signal.SIGKILL
    assert math_reward([boxed(r"\frac36")], [r"\frac12 + 0"]) == [1.0]


IDLE_OR_BUSY = """
import itertools, time
from tempo_trl.rewards import grader_worker, math_equality
grader_worker.CPU_SECONDS = 0.2
math_equality.is_equal = lambda _, answer: all(itertools.count(1)) if answer == "busy" else time.sleep(0.5) is None
grader_worker.main()
"""


def test_only_the_childs_own_time_counts(make_grader):
    child = make_grader(IDLE_OR_BUSY)
    assert [child.compare("1", answer) for answer in ("idle", "busy", "idle")] == [True, None, True]


def test_the_childs_memory_does_not_depend_on_the_number_of_cores(make_grader, monkeypatch):
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, "64")
    child = make_grader(f"import json, os; input(); print(json.dumps([os.environ[name] for name in {names}]))")
    assert child.compare("1", "1") == ["1", "1"]


def test_an_answer_that_kills_the_child_is_not_decided_and_the_next_one_is_graded(make_grader):
    mortal = make_grader("if 'die' not in input(): print('true', flush=True)")
    assert mortal.compare("1", "die") is None
    assert mortal.compare("1", "1") is True


def test_an_interrupted_question_does_not_answer_the_next_one(make_grader, monkeypatch):
    def interrupt(self, question):
        self._process.stdin.write(question)
        raise KeyboardInterrupt

    echo = make_grader("while True: print('true' if '1' in input() else 'false', flush=True)")
    assert echo.compare("1", "1") is True
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Grader, "_ask", interrupt)
        echo.compare("1", "1")
    assert echo.compare("2", "2") is False


def test_the_widest_question_does_not_block_on_a_child_that_reads_nothing(make_grader, monkeypatch):
    monkeypatch.setattr(grader, "REPLY_SECONDS", 0.2)
    deaf = make_grader("import time; time.sleep(60)")
    widest = "\U0001d7d3" * MAX_ANSWER_CHARS  # 12 bytes of JSON each
    assert deaf.compare(widest, widest) is None
    assert deaf._process is None


@pytest.mark.parametrize(
    "program, reason",
    [
        ("raise SystemExit", "its child failed"),
        ("raise MemoryError", "its child failed"),
        ("while input(): print('null', flush=True)", "it takes too much time"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGVTALRM)", "it takes too much time"),
    ],
)
def test_what_is_undecided_is_none_and_said_once_with_its_reason(program, reason, make_grader, monkeypatch, caplog):
    grader.undecided.cache_clear()
    monkeypatch.setattr(reward_module, "shared_grader", make_grader(program))
    for _ in range(2):
        assert math_reward([boxed("x"), boxed("5"), "none"], ["5"] * 3) == [None, 1.0, 0.0]
    [record] = caplog.records
    assert record.getMessage().startswith(f"math_reward did not judge an answer (its reward is None): {reason}")


def test_threads_share_one_child():
    shared_grader.close()
    rewards = {}

    def grade(i):
        rewards[i] = math_reward([boxed(f"{n} + 0") for n in range(8)], [str(i)] * 8)

    threads = [threading.Thread(target=grade, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == {i: [float(n == i) for n in range(8)] for i in range(8)}


def test_a_forked_process_has_a_child_of_its_own_even_if_the_lock_was_held():
    assert shared_grader.compare("1", "1.0")
    pid = shared_grader._process.pid
    with shared_grader._lock:
        forked = os.fork()
        if forked == 0:
            right = shared_grader.compare("1", "1.0") and shared_grader._process.pid != pid
            shared_grader.close()
            os._exit(0 if right else 1)  # not pytest's exit
    assert os.waitpid(forked, 0)[1] == 0
    assert shared_grader.compare("1", "1.0")
    assert shared_grader._process.pid == pid


def test_the_worker_ends_with_its_stdin_and_limits_its_memory():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": os.environ | {"PYTHONPATH": str(PACKAGE)}}
    with subprocess.Popen([sys.executable, *COMMAND], text=True, **pipes) as worker:
        worker.stdin.write('["5", "5.0"]\n')
        worker.stdin.flush()
        assert worker.stdout.readline() == "true\n"
        limits = Path(f"/proc/{worker.pid}/limits")
        if limits.exists():
            assert str(4 * 2**30) in limits.read_text()
        worker.stdin.close()
        assert worker.wait(timeout=300) == 0


def test_a_script_without_a_main_guard_runs_once_and_files_beside_it_are_not_imported(tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError('not the json of the library')")
    script = "from tempo_trl.rewards import math_reward\nprint(math_reward([r'\\boxed{x/2}'], [r'\\frac x2']))"
    (tmp_path / "train.py").write_text(script)
    output = subprocess.run(
        [sys.executable, "-P", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (output.stdout, output.stderr, output.returncode) == ("[1.0]\n", "", 0)
