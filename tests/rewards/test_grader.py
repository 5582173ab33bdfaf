"""The child process that compares answers: kept, killed, replaced, and never in the way of its parent."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tempo_trl.rewards import grader, math_reward
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, WORKER, Grader, shared_grader

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


def test_a_child_that_never_replies_is_killed_and_replaced_and_its_question_stays_open(monkeypatch):
    shared_grader.close()
    assert shared_grader.compare("1", "1.0").equal
    process = shared_grader._process
    os.kill(process.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(grader, "REPLY_SECONDS", 0.1)
        assert math_reward([boxed(r"\frac36")], [r"\frac12 + 0"]) == [None]
    assert process.returncode == -signal.SIGKILL
    assert math_reward([boxed(r"\frac36")], [r"\frac12 + 0"]) == [1.0]


# Right answers that took math-verify nearly a second, which was its limit on the wall.
SLOW = [("x^3+125", "(x+5)(x^2-5x+25)"), ("x^2/16 + y^2/12 = 1/4", "x^2/4 + y^2/3 = 1")]


@pytest.mark.matrix
@pytest.mark.parametrize(("gold", "answer"), SLOW)
def test_a_child_that_is_stopped_for_longer_than_its_limit_gives_the_verdict_of_an_idle_machine(gold, answer):
    """The child runs for a tenth of the time: its clock stands still while it is stopped."""
    shared_grader.close()
    assert shared_grader.compare("1", "1.0").equal
    pid, done = shared_grader._process.pid, threading.Event()

    def hold():
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            done.wait(0.45)
            os.kill(pid, signal.SIGCONT)
            done.wait(0.05)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        verdict = shared_grader.compare(gold, answer)
    finally:
        done.set()
        holder.join()
    assert verdict.equal is True
    assert shared_grader._process.pid == pid


@pytest.mark.matrix
def test_what_takes_too_long_to_compute_is_not_decided_whether_python_or_c_takes_it():
    for endless in (r"\sum_{i=1}^{10^9} i^i", "(10^9)!"):
        verdict = shared_grader.compare("5", endless)
        assert verdict.equal is None
        assert verdict.cpu_seconds > 2.5  # of 3, as the kernel counts


def test_a_child_that_was_killed_between_calls_is_replaced():
    assert shared_grader.compare("1", "1.0").equal
    shared_grader._process.kill()
    shared_grader._process.wait()
    assert math_reward([boxed(r"\frac36")], [r"\frac12 + 0"]) == [1.0]


def test_an_answer_that_kills_the_child_is_not_decided_and_the_next_one_is_graded(make_grader):
    mortal = make_grader("print('ready', flush=True)\nif 'die' not in input(): print('[true, 0.0]', flush=True)")
    assert mortal.compare("1", "die") == (None, grader.LOST_CPU_SECONDS)
    assert mortal.compare("1", "1").equal is True


def test_an_interrupted_question_does_not_answer_the_next_one(make_grader, monkeypatch):
    def interrupt(self, seconds):
        raise KeyboardInterrupt

    echo = make_grader(
        "print('ready', flush=True)\nwhile True: print('[true, 0]' if '1' in input() else '[false, 0]', flush=True)"
    )
    assert echo.compare("1", "1").equal is True
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Grader, "_read_line", interrupt)
        echo.compare("1", "1")
    assert echo.compare("2", "2").equal is False


def test_the_start_of_a_child_is_not_on_the_answers_clock(make_grader, monkeypatch):
    clocks = []

    def read_line(self, seconds, real=Grader._read_line):
        clocks.append(seconds)
        return real(self, seconds)

    monkeypatch.setattr(Grader, "_read_line", read_line)
    child = make_grader("print('ready', flush=True); input(); print('[true, 0.5]', flush=True)")
    assert child.compare("1", "1") == (True, 0.5)
    assert clocks == [grader.START_SECONDS, grader.REPLY_SECONDS]


def test_a_child_that_never_gets_ready_is_killed(make_grader, monkeypatch):
    monkeypatch.setattr(grader, "START_SECONDS", 0.1)
    stuck = make_grader("import time; time.sleep(60)")
    assert stuck.compare("1", "1") == (None, 0.0)
    assert stuck._process is None


def test_a_child_that_does_not_start_leaves_the_question_open(make_grader, monkeypatch):
    assert make_grader("raise SystemExit").compare("1", "1") == (None, 0.0)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert Grader().compare("1", "1") == (None, 0.0)


def test_the_widest_question_does_not_block_on_a_child_that_reads_nothing(make_grader, monkeypatch):
    monkeypatch.setattr(grader, "REPLY_SECONDS", 0.2)
    deaf = make_grader("import time; print('ready', flush=True); time.sleep(60)")
    widest = "\U0001d7d3" * MAX_ANSWER_CHARS  # 12 bytes of JSON each
    assert deaf.compare(widest, widest).equal is None


def test_what_the_budget_of_a_call_does_not_reach_is_none_with_one_warning(make_grader, monkeypatch, caplog):
    dear = make_grader("print('ready', flush=True)\nwhile input(): print('[false, 4.0]', flush=True)")
    monkeypatch.setattr(reward_module, "shared_grader", dear)
    answers = [boxed("x"), boxed("y"), boxed("z"), boxed("5"), "none"]  # 6.25 s for five: two comparisons begin
    assert math_reward(answers, ["5"] * 5) == [0.0, 0.0, None, 1.0, 0.0]
    assert [record.getMessage()[:69] for record in caplog.records] == [
        "math_reward did not grade 1 of 5 completions (their reward is None): "
    ]


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
    assert shared_grader.compare("1", "1.0").equal
    pid = shared_grader._process.pid
    with shared_grader._lock:
        forked = os.fork()
        if forked == 0:
            right = shared_grader.compare("1", "1.0").equal and shared_grader._process.pid != pid
            shared_grader.close()
            os._exit(0 if right else 1)  # not pytest's exit
    assert os.waitpid(forked, 0)[1] == 0
    assert shared_grader.compare("1", "1.0").equal
    assert shared_grader._process.pid == pid


def test_the_worker_ends_with_its_stdin_and_limits_its_memory():
    command = [sys.executable, "-P", str(WORKER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "ready\n"
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


def test_math_verify_calls_the_functions_that_the_child_replaces():
    """They are private: an upgrade that renames them must fail here, not in the verdicts."""
    import math_verify.grader

    for name in ("sympy_numeric_eq", "sympy_symbolic_eq", "sympy_solve_and_compare"):
        assert name in math_verify.grader.sympy_expr_eq.__code__.co_names or name in (
            math_verify.grader.sympy_compare_relational.__code__.co_names
        )
