r"""The reward of a mathematical answer: what is paid, what is not, and that no answer can stop a training run."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.rewards import grader, math_reward
from tempo_trl.rewards.boxed import committed_answer, gold_answer, last_box
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, WORKER, Grader, shared_grader

ROOT = Path(__file__).parents[1]
REAL_ROWS = ROOT.parent / "shared" / "data"
needs_real_rows = pytest.mark.skipif(not REAL_ROWS.is_dir(), reason="needs the real rows beside the repository")

# The package exports the function under its module's name.
reward_module = sys.modules["tempo_trl.rewards.math_reward"]


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def read_rows(name):
    return [json.loads(line) for line in (REAL_ROWS / f"{name}.jsonl").read_text().splitlines()]


def soon(seconds=9.0):
    return time.monotonic() + seconds


# The text side


@pytest.mark.parametrize(
    "text, content",
    [
        (r"\boxed{5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed 5$ apples", "5"),
        (r"\boxed -3.5.", "-3.5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"first \boxed{3}, then \boxed{4}", "4"),
        (r"\boxed{x = \boxed{4}}", "4"),
        (r"a set { and \boxed{5}", "5"),
        (r"\boxed{3} then \boxed{4", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{5", None),
        (r"write \boxed around it", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_last_balanced_box_holds_the_answer(text, content):
    assert last_box(text) == content


def last_box_by_definition(pieces):
    """From the last opening to the first: the content up to where the braces balance, if they do."""
    for first in reversed(range(len(pieces))):
        depth = 0
        for last in range(first, len(pieces)):
            depth += (pieces[last] in {r"\boxed{", r"\fbox{", "{"}) - (pieces[last] == "}")
            if depth == 0:
                break
        if pieces[first] in {r"\boxed{", r"\fbox{"} and depth == 0:
            return "".join(pieces[first + 1 : last])
    return None


@given(st.lists(st.sampled_from([r"\boxed{", r"\fbox{", "{", "}", r"\{", r"\}", r"\\", "5", " "])))
def test_the_single_pass_finds_the_box_of_the_definition(pieces):
    assert last_box("".join(pieces)) == last_box_by_definition(pieces)


@pytest.mark.parametrize(
    "completion, answer",
    [
        (r"<think>\boxed{3}</think> So \boxed{5}.", "5"),
        (r"\boxed{3}</think> So \boxed{5}.", "5"),
        (r"<think>a</think> \boxed{3} <think>b</think> \boxed{5}", "5"),
        (r"<think>\boxed{5}</think> So 5.", ""),
        (r"<think>\boxed{5}", ""),
        (r"\boxed{5} <think> but wait", ""),
        (r"<think>a</think> \boxed{5} <think> but wait", ""),
        (r"\boxed{ }", ""),
    ],
)
def test_an_unfinished_thought_is_not_an_answer(completion, answer):
    assert committed_answer(completion) == answer


@pytest.mark.parametrize(
    "solution, answer",
    [
        (r"so $x = \boxed{5}$", "5"),
        (" 5 ", "5"),
        (r"\boxed{}", ""),
        ("", ""),
        (r"cut \boxed{5", ""),
    ],
)
def test_a_gold_is_a_worked_solution_or_a_bare_answer(solution, answer):
    assert gold_answer(solution) == answer


# What is paid


@pytest.mark.parametrize(
    "gold, answer",
    [
        (r"\frac{1}{2}", r"\frac12"),
        (r"\frac12", "0.5"),
        (r"\frac12", "1/2"),
        (r"\sqrt{3}", r"\sqrt3"),
        ("5", "x=5"),
        ("x=5", "5"),
        ("5", "$5$"),
        ("5", r"5\text{ cm}"),
        (r"50\%", "50"),
        ("1000", "1,000"),
        (r"\$5", "5"),
        (r"\{1, 2\}", "2, 1"),
        ("[1,2)", r"\left[1, 2\right)"),
        (r"\text{east}", "east"),
        ("x^2-1", "(x-1)(x+1)"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ \frac{4}{2} \end{pmatrix}"),
    ],
)
def test_an_equal_answer_is_paid_in_another_form(gold, answer):
    assert math_reward([boxed(answer), boxed(answer)], [gold, f"Hence {boxed(gold)}."]) == [1.0, 1.0]


@pytest.mark.parametrize(
    "gold, answer",
    [
        (r"\frac12", r"\frac13"),
        ("5", "5,6"),
        ("5", "5 or 6"),
        ("(1,2)", "[1,2]"),
        ("(1,2)", "(2,1)"),
        (r"\{1, 2\}", "1"),
        ("x", "y"),
        ("5", "-5"),
        (r"\text{east}", "west"),
    ],
)
def test_another_answer_is_not_paid(gold, answer):
    assert math_reward([boxed(answer)], [gold]) == [0.0]


@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_every_gold_of_math_is_paid_as_a_solution_and_as_a_bare_answer(name):
    solutions = [row["solution"] for row in read_rows(name)]
    golds = [row.get("answer", gold_answer(row["solution"])) for row in read_rows(name)]
    echoes = [f"The answer is ${boxed(gold)}$." for gold in golds]
    assert math_reward(echoes, golds) == [1.0] * len(golds)
    assert math_reward(echoes, solutions) == [1.0] * len(golds)


@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_math_verify_itself_pays_every_gold_of_math(name):
    golds = [gold_answer(row["solution"]) for row in read_rows(name)]
    assert [gold for gold in golds if not shared_grader.is_equal(gold, gold, soon())] == []


# TRL's contract


@pytest.mark.parametrize(
    "completion, reward",
    [
        (r"\boxed{5}", 1.0),
        ([{"role": "assistant", "content": r"\boxed{5}"}], 1.0),
        ([{"content": r"\boxed{5}"}], 1.0),
        ([{"role": "assistant", "content": r"\boxed{5}"}, {"role": "tool", "content": r"\boxed{6}"}], 1.0),
        ([{"role": "assistant", "content": r"\boxed{6}"}, {"role": "assistant", "content": r"\boxed{5}"}], 1.0),
        ([{"role": "assistant", "content": r"\boxed{5}"}, {"role": "assistant", "content": None}], 0.0),
        ([{"role": "user", "content": r"\boxed{5}"}], 0.0),
        ([], 0.0),
    ],
)
def test_the_last_assistant_message_is_graded(completion, reward):
    assert math_reward([completion], ["5"]) == [reward]


def test_a_row_without_a_gold_is_not_rewarded():
    assert math_reward([boxed(""), boxed("5"), boxed("5")], ["", boxed(""), boxed("5")]) == [None, None, 1.0]


def test_the_share_of_completions_without_an_answer_is_logged():
    metrics = {}
    columns = {"prompts": ["?"] * 4, "completion_ids": [[1]] * 4, "trainer_state": None, "log_extra": None}
    completions = [boxed("5"), "5", boxed(""), f"<think>{boxed('5')}"]
    rewards = math_reward(completions=completions, solution=["5"] * 4, log_metric=metrics.__setitem__, **columns)
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert metrics == {"math/no_answer": 0.75}


def test_an_empty_batch_has_no_rewards():
    assert math_reward([], [], log_metric=lambda name, share: pytest.fail("no share of nothing")) == []


def test_a_solution_is_needed_for_each_completion():
    with pytest.raises(ValueError, match="got 1 solutions for 2 completions"):
        math_reward([boxed("5")] * 2, ["5"])


def test_without_math_verify_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "tempo_trl\[math-verify\]"'):
        math_reward([boxed("5")], ["5"])


def test_importing_the_reward_imports_neither_math_verify_nor_torch():
    script = "import sys, tempo_trl.rewards; print({'math_verify', 'sympy', 'torch', 'trl'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT) == "set()\n"


# Traps

TRAPS = {
    "a power tower": boxed("2^{2^{2^{49}}}"),
    "a large binomial": boxed(r"\binom{100000}{50000}"),
    "a large factorial": boxed("(10^9)!"),
    "a long sum": boxed(r"\sum_{i=1}^{10^9} i^i"),
    "a long completion": "x" * 100_000 + boxed("6"),
    "a long answer": boxed("1+" * 50_000),
    "an answer just short enough": boxed("1+" * (MAX_ANSWER_CHARS // 2 - 1)),
    "the right answer, too long": boxed("0" * MAX_ANSWER_CHARS + "5"),
    "ten thousand braces": boxed("{" * 10_000 + "5" + "}" * 10_000),
    "nine hundred parentheses": boxed("(" * 900 + "5" + ")" * 900),
    "boxes that never close": r"\boxed{" * 15_000,
    "control characters": boxed("5\x00\x07\x1b\n6"),
    "a lone surrogate": boxed("\ud8005"),
    "a mathematical digit": boxed("\U0001d7d3"),
    "a full-width digit": boxed("５"),
    "a superscript digit": boxed("²"),
    "no text": "",
    "no answer": boxed(""),
    "no closing brace": r"\boxed{5",
    "a box after the right one": boxed("5") + boxed("6"),
    "a number without a box": "5",
}


@pytest.mark.parametrize("completion", TRAPS.values(), ids=TRAPS.keys())
def test_a_trap_is_not_paid_and_ends_in_time(completion):
    started = time.monotonic()
    assert math_reward([completion], ["5"]) == [0.0]
    assert time.monotonic() - started < 10


def test_an_answer_is_not_executed(tmp_path):
    code = f'__import__("os").system("touch {tmp_path}/touched")'
    assert math_reward([boxed(code), boxed(f"5+{code}")], ["5", "5"]) == [0.0, 0.0]
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_characters="0123456789"), max_size=30))
def test_no_text_without_a_digit_raises_or_is_worth_five(text):
    assert math_reward([boxed(text), text], ["5", "5"]) == [0.0, 0.0]


# The child process


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
