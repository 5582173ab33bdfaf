"""What starts, ends, resumes and watches the demo's run of a language model; a script stands in for training."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tempo_trl.demo import language_run
from tempo_trl.demo.language_model import Source
from tempo_trl.demo.language_run import LANGUAGE_TASKS, LanguageRun, Watch
from tempo_trl.launch.arguments import parse
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import read_recipe, recipe_names, recipe_path

from .language_runs import HELD_OUT, TRAINED, evaluated, recorded, table, trained, wrong_city

ORDERS = LANGUAGE_TASKS["orders"]
RECIPES = [
    (task, name.removeprefix(f"smollm2-135m/{task}/"))
    for task in LANGUAGE_TASKS
    for name in recipe_names()
    if name.startswith(f"smollm2-135m/{task}/") and name.count("/") == 2
]
TRAINING = """
import sys, time
from pathlib import Path
from tests.demo.language_runs import HELD_OUT, TRAINED, evaluated, recorded, table, wrong_city

folder = Path(sys.argv[1])
table(folder, 0, HELD_OUT, ["Sure!", '{"city": '])
recorded(folder)
for step in (1, 2):
    time.sleep(1.5)
    table(folder, step, TRAINED, [wrong_city(TRAINED[0]["truth"]), TRAINED[1]["truth"] if step == 2 else "no"])
time.sleep(1.5)
evaluated(folder)
"""


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(language_run, "language_model", lambda: Source("a folder", "a folder"))


def stand_in(script: str):
    """A command that runs a script instead of the training."""
    return lambda run: [sys.executable, "-c", script, str(run.folder)]


def test_without_a_model_the_demo_offers_the_tiny_one(monkeypatch, tmp_path, capsys):
    def absent():
        raise FileNotFoundError("the model is neither here nor there")

    monkeypatch.setattr(language_run, "language_model", absent)
    assert language_run.main(str(tmp_path), True, False, None) == 2
    assert "--task sums" in capsys.readouterr().out


@pytest.mark.parametrize("task", LANGUAGE_TASKS)
@pytest.mark.parametrize("method", ["gae", "lora/tempo", "gigpo"])
def test_a_method_without_a_recipe_of_the_task_is_refused(method, task, tmp_path, capsys):
    assert language_run.main(str(tmp_path), True, False, method, task) == 2
    printed = capsys.readouterr().out
    assert method in printed
    assert "expected one of tempo, prefix_baseline," in printed
    assert "Without a language model" not in printed


@pytest.mark.parametrize(("task", "method"), RECIPES)
@pytest.mark.parametrize("quick", [False, True])
def test_the_run_of_every_recipe_is_one_that_the_parser_takes(task, method, quick, tmp_path):
    run = LanguageRun(LANGUAGE_TASKS[task], method, tmp_path, quick)
    words = run.command()
    script, training, *_ = parse(words[words.index("--config") :])
    assert script.method == read_recipe(recipe_path(f"smollm2-135m/{task}/{method}"))["method"]
    assert script.dataset_test_split == f"test[:{run.held_out}]"
    of_trl = METHODS[script.method].trainer.startswith("trl.")
    assert getattr(training, "log_trees_steps", None) == (None if of_trl else 1)


@pytest.mark.parametrize("task", LANGUAGE_TASKS.values(), ids=LANGUAGE_TASKS)
def test_the_default_method_and_the_baseline_have_recipes(task):
    for method in (task.method, language_run.BASELINE):
        assert recipe_path(f"{task.recipes}/{method}").is_file()


def test_all_held_out_orders_fit_into_the_table_of_a_generation():
    for quick in (False, True):
        run = LanguageRun(ORDERS, "grpo", Path("x"), quick)
        training = parse(run.command()[run.command().index("--config") :]).training
        rows = training.per_device_train_batch_size * training.gradient_accumulation_steps
        assert run.held_out <= rows


def test_the_share_of_each_step_outlives_the_evaluation_that_replaces_its_table(tmp_path):
    run = LanguageRun(ORDERS, "grpo", tmp_path)
    assert run.shares() == []
    trained(tmp_path)
    shares = [5 / 6, 11 / 12]
    assert run.shares() == pytest.approx(shares)
    evaluated(tmp_path)
    assert run.finished()
    assert run.shares() == pytest.approx(shares)
    assert LanguageRun(ORDERS, "grpo", tmp_path).shares() == pytest.approx(shares)  # in another process


def test_a_step_that_is_trained_again_counts_once(tmp_path):
    trained(tmp_path)
    assert len(LanguageRun(ORDERS, "grpo", tmp_path).shares()) == 2
    run = LanguageRun(ORDERS, "grpo", tmp_path)
    (tmp_path / "completions" / "completions_00002.parquet").unlink()  # as the clock of the resumed run does
    assert run.shares() == pytest.approx([5 / 6])
    table(tmp_path, 2, TRAINED, ["no", "no"])
    assert run.shares() == pytest.approx([5 / 6, 0])


def test_a_table_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    trained(tmp_path)
    path = tmp_path / "completions" / "completions_00002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    run = LanguageRun(ORDERS, "grpo", tmp_path)
    assert len(run.shares()) == 1
    path.write_bytes(whole)
    assert len(run.shares()) == 2


def test_the_watch_says_what_the_run_does_and_how_long_it_has(tmp_path):
    run = LanguageRun(ORDERS, "grpo", tmp_path)
    table(tmp_path, 0, HELD_OUT, ["no", "no"])  # of an attempt that was interrupted
    (tmp_path / "checkpoint-1").mkdir()
    log = {"log_history": [{"step": 1, "step_time": 50.0}]}
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text(json.dumps(log))
    time.sleep(0.01)
    watch = Watch(run)
    assert watch.look()
    assert watch.state(curve=True) == "loading, and answering held-out orders"
    assert not watch.look()
    table(tmp_path, 1, HELD_OUT, ["no", "no"])
    assert watch.look()
    assert watch.state(curve=True) == f"first step, {ORDERS.seconds - 50} s left"
    table(tmp_path, 2, TRAINED, [wrong_city(TRAINED[0]["truth"]), "no"])
    assert watch.look()
    assert watch.state(curve=False) == f"step 1, right fields 0.42, {ORDERS.seconds - 50} s left"
    assert watch.state(curve=True) == f"right fields 0.42 ▃ 0.42, {ORDERS.seconds - 50} s left"
    evaluated(tmp_path)
    assert watch.look()
    assert watch.state(curve=True) == "answering held-out orders"
    assert watch.spent() == ORDERS.seconds


def test_the_line_with_the_bar_fits_into_80_columns(tmp_path):
    watch = Watch(LanguageRun(ORDERS, "grpo", tmp_path))
    watch.phase, watch.shares, watch.begun = "training", [0.5] * 40, time.monotonic()
    assert len(f"prefix_baseline {'━' * 10} {watch.state(curve=True)}") <= 80


@pytest.mark.usefixtures("model")
def test_into_a_file_the_demo_prints_a_line_per_step_and_what_changed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(LanguageRun, "command", stand_in(TRAINING))
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setattr(language_run, "Console", lambda: Console(width=80))
    assert language_run.main(str(tmp_path), False, False, None) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80  # a path to copy stays whole
    for name in ("curves.png", "results.json", "report.html"):
        assert str(tmp_path / "orders" / name) in printed
    steps = [line for line in lines if line.startswith("span_credit: step ")]
    assert [line.rpartition(",")[0] for line in steps] == [
        "span_credit: step 1, right fields 0.42",
        "span_credit: step 2, right fields 0.92",
    ]
    assert "mean of the six" in printed
    folder = tmp_path / "orders"
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((folder / "results.json").read_text())["runs"]["span_credit"]
    assert results["right fields"] == pytest.approx([5 / 12, 11 / 12])
    assert results["held_out"]["before"]["city"] == 0
    assert results["held_out"]["after"]["all"] == 1
    assert (folder / "report.html").is_file()
    assert language_run.main(str(tmp_path), False, False, None) == 0  # is not trained again
    assert "span_credit is finished" in capsys.readouterr().out


@pytest.mark.usefixtures("model")
def test_a_run_that_fails_shows_the_end_of_its_log(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(LanguageRun, "command", stand_in("raise SystemExit('no memory left')"))
    assert language_run.main(str(tmp_path), True, False, "grpo") == 1
    printed = capsys.readouterr().out
    assert "no memory left" in printed
    assert (tmp_path / "orders-quick" / "grpo" / "run.log").is_file()


@pytest.mark.usefixtures("model")
def test_ctrl_c_ends_the_training_and_says_how_to_go_on(monkeypatch, tmp_path, capsys):
    started = []

    def interrupted(watch):
        started.append(watch.run.process)
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageRun, "command", stand_in("import time; time.sleep(60)"))
    monkeypatch.setattr(Watch, "look", interrupted)
    assert language_run.main(str(tmp_path), True, False, None) == 130
    assert "Repeat the command" in capsys.readouterr().out
    assert isinstance(started[0], subprocess.Popen)
    assert started[0].poll() is not None


def test_a_recorded_group_does_not_stand_for_a_finished_run(tmp_path):
    recorded(tmp_path)
    assert not LanguageRun(ORDERS, "span_credit", tmp_path).finished()
