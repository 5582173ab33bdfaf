"""What the demo runs, and how it watches, ends and resumes it; a script stands in for training."""

import json
import os
import sys

import pytest
from rich.console import Console

from tempo_trl.demo import orders
from tempo_trl.demo.language_model import Source
from tempo_trl.demo.run import Run, Watch
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import parse

from .order_runs import TRAINED, evaluated, table, trained

TRAINING = """
import sys, time
from pathlib import Path
from tests.demo.order_runs import HELD_OUT, TRAINED, evaluated, recorded, table, wrong_city

folder = Path(sys.argv[1])
seen = folder / "shares.json"
table(folder, 0, HELD_OUT, ["Sure!", '{"city": '])
recorded(folder)
for step in (1, 2):
    answers = [wrong_city(TRAINED[0]["truth"]), TRAINED[1]["truth"] if step == 2 else "no"]
    written = table(folder, step, TRAINED, answers)
    end = time.monotonic() + 300  # of a test that does not look
    while not (seen.exists() and written.name in seen.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
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


def test_the_share_of_each_step_outlives_the_evaluation_that_replaces_its_table(tmp_path):
    run = Run("grpo", tmp_path)
    assert run.shares() == []
    trained(tmp_path)
    shares = [5 / 6, 11 / 12]
    assert run.shares() == pytest.approx(shares)
    evaluated(tmp_path)
    assert run.finished()
    assert run.shares() == pytest.approx(shares)
    assert Run("grpo", tmp_path).shares() == pytest.approx(shares)  # in another process


def test_a_step_that_is_trained_again_counts_once(tmp_path):
    trained(tmp_path)
    assert len(Run("grpo", tmp_path).shares()) == 2
    run = Run("grpo", tmp_path)
    (tmp_path / "completions" / "completions_00002.parquet").unlink()  # as the clock of the resumed run does
    assert run.shares() == pytest.approx([5 / 6])
    table(tmp_path, 2, TRAINED, ["no", "no"])
    assert run.shares() == pytest.approx([5 / 6, 0])


def test_a_table_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    trained(tmp_path)
    path = tmp_path / "completions" / "completions_00002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    run = Run("grpo", tmp_path)
    assert len(run.shares()) == 1
    path.write_bytes(whole)
    assert len(run.shares()) == 2


def test_a_look_shows_the_last_step_where_training_ends_meanwhile(tmp_path, monkeypatch):
    run = Run("grpo", tmp_path)
    watch, shares = Watch(run), run.shares
    trained(tmp_path)
    monkeypatch.setattr(run, "shares", lambda: (shares(), evaluated(tmp_path))[0])
    assert watch.look()
    assert watch.state(curve=False).startswith("step 2, right fields 0.92")
    assert watch.look()
    assert watch.phase == "after"


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_into_a_file_the_demo_prints_a_line_per_step_and_what_changed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(orders, "language_model", lambda: Source("a folder", "a folder"))
    monkeypatch.setattr(Run, "command", lambda run: [sys.executable, "-c", TRAINING, str(run.folder)])
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setattr(orders, "Console", lambda: Console(width=80))
    assert orders.main(str(tmp_path), quick=False, compare=False) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80  # a path to copy stays whole
    for name in ("results.json", "report.html"):
        assert str(tmp_path / "orders" / name) in printed
    steps = [line for line in lines if line.startswith("span_credit: step ")]
    assert [line.rpartition(",")[0] for line in steps] == [
        "span_credit: step 1, right fields 0.42",
        "span_credit: step 2, right fields 0.92",
    ]
    assert "mean of the six" in printed
    folder = tmp_path / "orders"
    results = json.loads((folder / "results.json").read_text())["runs"]["span_credit"]
    assert results["right fields"] == pytest.approx([5 / 12, 11 / 12])
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
