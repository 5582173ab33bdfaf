"""The child process that compares answers: kept, killed, replaced, and never in the way of its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tempo_trl.rewards import grader, math_reward
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, WORKER, Grader, shared_grader

from .answers import ROOT, boxed, soon

# The package exports the function under its module's name.
reward_module = sys.modules["tempo_trl.rewards.math_reward"]


@pytest.fixture
def make_grader(tmp_path, monkeypatch):
    """A grader whose child is the given program, to misbehave on demand."""
    started = []

    def make(program):
        worker = tmp_path / "worker.py"
        worker.write_text(program)
        monkeypatch.setattr(grader, "WORKER", worker)
        started.append(Grader())
        return started[-1]

    yield make
    for each in started:
        each.close()


def test_the_child_is_kept_from_call_to_call():
    math_reward([boxed("5")], ["6"])
    pid = shared_grader._process.pid
    math_reward([boxed("7")], ["6"])
    assert shared_grader._process.pid == pid


def test_a_child_that_hangs_is_killed_and_replaced_within_ten_seconds():
    shared_grader.close()
    assert shared_grader.is_equal("1", "1.0", soon())
    process = shared_grader._process
    os.kill(process.pid, signal.SIGSTOP)
    started = time.monotonic()
    assert math_reward([boxed("0.5"), boxed("5")], [r"\frac12", "5.0"]) == [0.0, 1.0]
    assert time.monotonic() - started < 10
    assert process.returncode == -signal.SIGKILL


def test_a_child_that_was_killed_between_calls_is_replaced():
    assert shared_grader.is_equal("1", "1.0", soon())
    shared_grader._process.kill()
    shared_grader._process.wait()
    assert math_reward([boxed("0.5")], [r"\frac12"]) == [1.0]


def test_an_answer_that_kills_the_child_is_wrong_and_the_next_one_is_graded(make_grader):
    mortal = make_grader("print('ready', flush=True)\nif 'die' not in input(): print('true', flush=True)")
    assert mortal.is_equal("1", "die", soon()) is False
    assert mortal.is_equal("1", "1", soon()) is True


def test_an_interrupted_question_does_not_answer_the_next_one(make_grader, monkeypatch):
    def interrupt(self, deadline):
        raise KeyboardInterrupt

    echo = make_grader(
        "print('ready', flush=True)\nwhile True: print('true' if '1' in input() else 'false', flush=True)"
    )
    assert echo.is_equal("1", "1", soon()) is True
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Grader, "_read_line", interrupt)
        echo.is_equal("1", "1", soon())
    assert echo.is_equal("2", "2", soon()) is False


def test_a_child_that_is_slow_to_start_is_kept_for_the_next_question(make_grader):
    slow = make_grader("import time; time.sleep(0.5); print('ready', flush=True); input(); print('true', flush=True)")
    assert slow.is_equal("1", "1", soon(0.1)) is None
    pid = slow._process.pid
    assert slow.is_equal("1", "1", soon()) is True
    assert slow._process.pid == pid


def test_a_child_that_does_not_start_leaves_the_question_open(make_grader, monkeypatch):
    assert make_grader("raise SystemExit").is_equal("1", "1", soon()) is None
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert Grader().is_equal("1", "1", soon()) is None


def test_the_widest_question_does_not_block_on_a_child_that_reads_nothing(make_grader, monkeypatch):
    monkeypatch.setattr(grader, "ITEM_SECONDS", 0.2)
    deaf = make_grader("import time; print('ready', flush=True); time.sleep(60)")
    widest = "\U0001d7d3" * MAX_ANSWER_CHARS  # 12 bytes of JSON each
    assert deaf.is_equal(widest, widest, soon()) is False


def test_what_the_deadline_leaves_ungraded_is_none_with_one_warning(monkeypatch, caplog):
    assert shared_grader.is_equal("1", "1.0", soon())  # it is not the start of the child that takes too long
    monkeypatch.setattr(reward_module, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(reward_module, "COMPLETION_SECONDS", 0.0)
    assert math_reward([boxed("5"), boxed("6"), boxed("7"), "none"], ["5"] * 4) == [1.0, None, None, 0.0]
    assert [record.getMessage()[:66] for record in caplog.records] == [
        "math_reward ran out of time: 2 of 4 completions are ungraded (None"
    ]


def test_threads_share_one_child():
    shared_grader.close()
    rewards = {}

    def grade(i):
        rewards[i] = math_reward([boxed(f"{n}.0") for n in range(8)], [str(i)] * 8)

    threads = [threading.Thread(target=grade, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == {i: [float(n == i) for n in range(8)] for i in range(8)}


def test_a_forked_process_has_a_child_of_its_own_even_if_the_lock_was_held():
    assert shared_grader.is_equal("1", "1.0", soon())
    pid = shared_grader._process.pid
    with shared_grader._lock:
        forked = os.fork()
        if forked == 0:
            right = shared_grader.is_equal("1", "1.0", soon()) and shared_grader._process.pid != pid
            shared_grader.close()
            os._exit(0 if right else 1)  # not pytest's exit
    assert os.waitpid(forked, 0)[1] == 0
    assert shared_grader.is_equal("1", "1.0", soon())
    assert shared_grader._process.pid == pid


def test_the_worker_ends_with_its_stdin_and_limits_its_memory():
    command = [sys.executable, "-P", str(WORKER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "ready\n"
        limits = Path(f"/proc/{worker.pid}/limits")
        if limits.exists():
            assert str(4 * 2**30) in limits.read_text()
        worker.stdin.close()
        assert worker.wait(timeout=5) == 0


def test_a_script_without_a_main_guard_runs_once_and_files_beside_it_are_not_imported(tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError('not the json of the library')")
    script = "from tempo_trl.rewards import math_reward\nprint(math_reward([r'\\boxed{0.5}'], [r'\\frac12']))"
    (tmp_path / "train.py").write_text(script)
    output = subprocess.run(
        [sys.executable, "-P", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (output.stdout, output.stderr, output.returncode) == ("[1.0]\n", "", 0)
