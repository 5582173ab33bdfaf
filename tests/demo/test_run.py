"""What starts, ends and resumes the runs of the demo, of each task; a script stands in for training."""

import subprocess
import sys
import time

import pytest

from tempo_trl.demo import orders, run, sums
from tempo_trl.demo.language_model import Source
from tempo_trl.demo.run import Run
from tempo_trl.launch import cli

TASKS = {"orders": ("orders-quick/span_credit", "span_credit"), "sums": ("sums-quick/tempo-seed0", "tempo seed 0")}
SLEEPING = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setattr(orders, "language_model", lambda: Source("a folder", "a folder"))


def stand_in(script: str, others: str = SLEEPING, method: str | None = None):
    """A command that runs a script instead of the training, for all methods or for one."""
    return lambda run: [sys.executable, "-c", script if method in (None, run.method) else others, str(run.folder)]


def demo(task: str, folder, *flags: str) -> int:
    return cli.main(["demo", "--task", task, "--output", str(folder), "--quick", *flags])


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_fails_shows_the_end_of_its_log(task, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Run, "command", stand_in("raise SystemExit('no memory left')"))
    assert demo(task, tmp_path) == 1
    folder, name = TASKS[task]
    printed = capsys.readouterr().out
    assert f"A run failed ({name})" in printed
    assert "no memory left" in printed
    assert (tmp_path / folder / "run.log").is_file()


def test_it_is_the_run_that_failed_whose_log_is_shown_and_the_others_end(tmp_path, monkeypatch, capsys):
    started, start = [], Run.start
    monkeypatch.setattr(Run, "command", stand_in("raise SystemExit('no luck')", method="prefix_baseline"))
    monkeypatch.setattr(Run, "start", lambda own: (start(own), started.append(own.process)))
    assert demo("sums", tmp_path) == 1
    printed = capsys.readouterr().out
    assert "A run failed (prefix_baseline seed 0)" in printed
    assert "no luck" in printed
    assert [process.poll() is not None for process in started] == [True, True]


@pytest.mark.parametrize(("task", "watch"), [("orders", orders.OrdersWatch), ("sums", sums.SumsWatch)])
def test_ctrl_c_ends_the_training_and_says_how_to_go_on(task, watch, monkeypatch, tmp_path, capsys):
    started = []

    def interrupted(watch):
        started.append(watch.run.process)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "command", stand_in(SLEEPING))
    monkeypatch.setattr(watch, "look", interrupted)
    assert demo(task, tmp_path) == 130
    assert "Repeat the command to resume them" in " ".join(capsys.readouterr().out.split())
    assert isinstance(started[0], subprocess.Popen)
    assert started[0].poll() is not None


def test_a_finished_run_is_not_repeated_and_the_others_are_trained(monkeypatch, tmp_path, capsys):
    done = "import pathlib, sys; pathlib.Path(sys.argv[1], 'eval_results.json').write_text('{}')"
    monkeypatch.setattr(Run, "command", stand_in(done))
    monkeypatch.setattr(sums, "demonstrate", lambda runs, *_: run.train(runs, sums.Console(), 2))
    assert demo("sums", tmp_path) is None
    (tmp_path / "sums-quick/grpo-seed0/eval_results.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.log")}
    time.sleep(0.01)
    assert demo("sums", tmp_path) is None
    assert "Finished before: tempo seed 0, prefix_baseline seed 0." in " ".join(capsys.readouterr().out.split())
    changed = [path.parent.name for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert changed == []  # the log is only appended to, and the script prints nothing
    assert (tmp_path / "sums-quick/grpo-seed0/eval_results.json").exists()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["gae", "lora/tempo", "gigpo"])
def test_a_method_without_a_recipe_of_the_task_is_refused(task, method, tmp_path, capsys):
    assert demo(task, tmp_path, "--methods", f"tempo,{method}") == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"tempo-trl demo: error: got --methods {method!r}, expected all, or some of tempo, prefix_"
    )


def test_no_seed_is_refused(tmp_path, capsys):
    assert demo("sums", tmp_path, "--seeds", "0") == 2
    assert "got --seeds 0, expected at least 1" in capsys.readouterr().err
