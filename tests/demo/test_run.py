"""What the demo runs, and how it watches, ends and resumes it; a script stands in for training."""

import json
import os
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from tempo_trl.demo import orders
from tempo_trl.demo.language_model import Source
from tempo_trl.demo.run import PROGRESS, Run, Watch
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.timed_training import Clock

TRAINING = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from tempo_trl.launch.timed_training import Clock
from tests.demo.order_runs import evaluated, recorded, trained

folder, clock, control = Path(sys.argv[1]), Clock(220), SimpleNamespace()
args = SimpleNamespace(output_dir=folder)
state = SimpleNamespace(global_step=0, is_world_process_zero=True, log_history=[], logging_steps=1)
clock.on_train_begin(args, state, control)
recorded(folder)
for step, reward in ((1, 0.42), (2, 0.9)):
    clock.on_step_begin(args, state, control)
    state.log_history.append({"step": step, "reward": reward, "step_time": 20.0})
    clock.on_log(args, state, control)
    while not (folder / f"seen-{step}").exists():
        time.sleep(0.01)
clock.on_train_end(args, state, control)
trained(folder)
evaluated(folder)
"""


@pytest.mark.parametrize("method", ["span_credit", "grpo"])
@pytest.mark.parametrize("quick", [False, True])
def test_a_run_is_one_that_the_parser_takes(method, quick, tmp_path):
    run = Run(method, tmp_path, quick)
    words = run.command()
    script, training, *_ = parse(words[words.index("--config") :])
    # All held-out orders fit into the table of a generation.
    assert run.held_out <= training.per_device_train_batch_size * training.gradient_accumulation_steps
    assert (script.method, script.dataset_test_split) == (method, f"test[:{run.held_out}]")
    assert training.log_trees_steps == 1


def test_a_watch_counts_the_seconds_of_the_clock_and_those_since_it_wrote(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Watch(Run("grpo", tmp_path))
    assert not watch.look()  # the clock has written nothing
    assert watch.state(curve=True) == "loading, and answering held-out orders"
    for phase, seconds, rewards, spent in (
        ("before", 0.0, [], 0.0),
        ("training", 60.0, [0.5, 0.75], 67.0),  # a resumed run
        ("training", 215.0, [0.5, 0.75, 1.0], 220.0),  # all that there are
        ("after", 215.0, [0.5, 0.75, 1.0], 220.0),
    ):
        (tmp_path / PROGRESS).write_text(json.dumps((phase, seconds, rewards)))
        assert watch.look() is (phase != "before")
        assert not watch.look()
        now[0] += 7.0
        assert watch.spent() == spent
        if phase == "training":
            last = f"step {len(rewards)}, reward {rewards[-1]:.2f}"
            assert watch.state(curve=False) == f"{last}, {220 - spent:.0f} s left"
    assert watch.state(curve=True) == "answering held-out orders"


def test_a_watch_reads_what_the_clock_writes(tmp_path):
    clock, watch, args = Clock(220), Watch(Run("grpo", tmp_path)), SimpleNamespace(output_dir=tmp_path)
    state = SimpleNamespace(global_step=0, is_world_process_zero=True, log_history=[], logging_steps=1)
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    told = []
    clock.on_train_begin(args, state, control)
    state.log_history.append({"step": 0, "eval_reward": 0.1})
    clock.on_log(args, state, control)  # of the evaluation before the first step
    told.append((watch.look(), watch.phase, watch.rewards))
    clock.on_step_begin(args, state, control)
    told.append((watch.look(), watch.phase, watch.rewards))
    state.log_history.append({"step": 1, "reward": 0.5, "step_time": 20.0})
    clock.on_log(args, state, control)
    told.append((watch.look(), watch.phase, watch.rewards, watch.seconds))
    clock.on_train_end(args, state, control)
    told.append((watch.look(), watch.phase, watch.rewards))
    assert told == [
        (False, "before", []),
        (True, "training", []),
        (True, "training", [0.5], 20.0),
        (True, "after", [0.5]),
    ]


def test_a_run_that_starts_forgets_how_far_an_earlier_attempt_was(tmp_path, monkeypatch):
    (tmp_path / PROGRESS).write_text(json.dumps(("after", 220.0, [1.0])))
    monkeypatch.setattr(Run, "command", lambda run: [sys.executable, "-c", ""])
    run = Run("grpo", tmp_path)
    run.start()
    assert run.process.wait() == 0
    assert not Watch(run).look()


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_into_a_file_the_demo_prints_a_line_per_step_and_what_changed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(orders, "language_model", lambda: Source("a folder", "a folder"))
    monkeypatch.setattr(Run, "command", lambda run: [sys.executable, "-c", TRAINING, str(run.folder)])
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setattr(orders, "Console", lambda: Console(width=80))
    look = Watch.look

    def seen(watch):
        changed = look(watch)
        for step in range(1, len(watch.rewards) + 1):
            (watch.run.folder / f"seen-{step}").touch()
        return changed

    monkeypatch.setattr(Watch, "look", seen)
    assert orders.main(str(tmp_path), quick=False, compare=False) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80  # a path to copy stays whole
    for name in ("results.json", "report.html"):
        assert str(tmp_path / "orders" / name) in printed
    steps = [line for line in lines if line.startswith("span_credit: step ")]
    assert [line.rpartition(",")[0] for line in steps] == [
        "span_credit: step 1, reward 0.42",
        "span_credit: step 2, reward 0.90",
    ]
    assert "mean of the six" in printed
    folder = tmp_path / "orders"
    results = json.loads((folder / "results.json").read_text())["runs"]["span_credit"]
    assert results["reward"] == [0.42, 0.9]
    assert results["held_out"]["before"]["city"] == 0
    assert results["held_out"]["after"]["all"] == 1
    assert (folder / "report.html").is_file()
    assert orders.main(str(tmp_path), quick=False, compare=False) == 0  # is not trained again
    assert "Finished before: span_credit." in capsys.readouterr().out


SLEEPING = "import time; time.sleep(60)"


@pytest.fixture
def demo(monkeypatch, tmp_path):
    """The verb, with a script for each method in place of training."""
    monkeypatch.setattr(orders, "language_model", lambda: Source("a folder", "a folder"))

    def run(*flags: str, **scripts: str) -> int:
        command = lambda own: [sys.executable, "-c", scripts.get(own.method, SLEEPING), str(own.folder)]  # noqa: E731
        monkeypatch.setattr(Run, "command", command)
        return cli.main(["demo", "--output", str(tmp_path), "--quick", *flags])

    return run


def test_a_run_that_fails_shows_the_end_of_its_log(demo, tmp_path, capsys):
    assert demo(span_credit="raise SystemExit('no memory left')") == 1
    printed = capsys.readouterr().out
    assert "A run failed (span_credit)" in printed
    assert "no memory left" in printed
    assert (tmp_path / "orders-quick/span_credit/run.log").is_file()


def test_ctrl_c_ends_the_training_and_says_how_to_go_on(demo, monkeypatch, capsys):
    started = []

    def interrupted(watch):
        started.append(watch.run.process)
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "look", interrupted)
    assert demo() == 130
    assert "Repeat the command to resume them" in " ".join(capsys.readouterr().out.split())
    assert started[0].poll() is not None


def test_a_finished_run_is_not_repeated_and_the_others_are_trained(demo, monkeypatch, tmp_path, capsys):
    done = "import pathlib, sys; pathlib.Path(sys.argv[1], 'eval_results.json').write_text('{}')"
    monkeypatch.setattr(orders, "show", lambda runs, *_: [run.method for run in runs])
    monkeypatch.setattr(orders, "report", lambda folders, path: path)
    assert demo("--compare", span_credit=done, grpo=done) == 0
    (tmp_path / "orders-quick/grpo/eval_results.json").unlink()
    assert demo("--compare", span_credit="raise SystemExit(1)", grpo=done) == 0
    assert "Finished before: span_credit." in capsys.readouterr().out
    assert (tmp_path / "orders-quick/grpo/eval_results.json").exists()
