"""The demo on sums from end to end, shortened: it trains, goes on, and shows what it measured."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from tempo_trl.demo import sums
from tempo_trl.demo.run import methods_with_recipes
from tempo_trl.launch.arguments import parse
from tempo_trl.methods import METHODS

SHORT = """
import sys
from tempo_trl.demo import sums
from tempo_trl.launch import cli

sums.QUICK_STEPS, own = int(sys.argv[1]), sums.SumsRun.overrides
sums.SumsRun.overrides = lambda run: own(run) | {"dataset_test_split": "test[:64]"}
raise SystemExit(cli.main(["demo", "--task", "sums", "--quick", "--output", *sys.argv[2:]]))
"""


def demonstrated(folder, steps: int, *flags: str) -> str:
    """The output of a short demo with one seed."""
    command = [sys.executable, "-c", SHORT, str(steps), str(folder), *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | {"COLUMNS": "100"})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module", autouse=True)
def quick(quick_python_of_module):
    """A demo starts a process for each run."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, quick):
    """The folder and the output of a demo of two generations."""
    folder = tmp_path_factory.mktemp("demo")
    return folder / "sums-quick", demonstrated(folder, 4)


def test_every_method_of_sums_has_a_recipe():
    elsewhere = ("rooms/", "/orders/")
    expected = [
        name for name, own in METHODS.items() if own.recipe and not any(part in own.recipe for part in elsewhere)
    ]
    assert methods_with_recipes(sums.RECIPES) == expected


@pytest.mark.parametrize("method", sums.METHODS)
def test_the_command_of_a_run_is_one_that_the_parser_takes(method, tmp_path):
    words = sums.SumsRun(method, tmp_path, seed=2, max_steps=10).command()
    script, training, *_ = parse(words[words.index("--config") :])
    assert (script.method, training.seed, training.max_steps) == (method, 2, 10)
    assert training.do_eval  # the run ends with an evaluation, which tells that it is finished


def test_a_run_is_as_far_as_its_tables_of_completions(tmp_path):
    run = sums.SumsRun("tempo", tmp_path, max_steps=10)
    watch = run.watch()
    assert not watch.look()
    assert (watch.done(), watch.state(curve=True)) == (0, "generation 0 of 5")
    (tmp_path / "completions").mkdir()
    for step in range(6):
        (tmp_path / "completions" / f"completions_{step:05d}.parquet").touch()
    assert watch.look()
    assert (watch.done(), watch.state(curve=True)) == (0.5, "generation 2 of 5")


@pytest.mark.matrix
def test_it_prints_the_comparison_the_credit_on_slips_and_a_tree(finished):
    _, printed = finished
    assert max(map(len, printed.splitlines())) <= 100 + len(str(finished[0]))
    words = " ".join(printed.split())  # the console wraps long lines
    verdicts = ("TEMPO - GRPO after training", "prefix baseline - GRPO after training")
    for expected in ("before", "after", "to 90", *verdicts, "is on the first slip", "n=8 V="):
        assert expected in words
    assert "does not show how runs vary" in words
    assert "tempo seed 0: generation 2 of 2" in printed


@pytest.mark.matrix
def test_it_writes_curves_completions_metrics_and_a_report_of_all_runs(finished):
    folder, printed = finished
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Credit per token: open" in printed
    text = (folder / "report.html").read_text(encoding="utf-8")
    for method in sums.METHODS:
        own = folder / f"{method}-seed0"
        assert f'"label":"{own.name}"' in text
        table = pd.read_parquet(own / "completions" / "completions_00001.parquet")
        assert len(table) == 256
        assert ("added_share" in table) == (method != "grpo")
        history = json.loads((own / "trainer_state.json").read_text())["log_history"]
        assert any("eval_reward" in entry for entry in history)
    assert (folder / "report" / "tree.svg").is_file()


@pytest.mark.matrix
def test_all_methods_start_from_the_same_policy_and_problems(finished):
    folder, _ = finished
    tempo, *others = [
        pd.read_parquet(folder / f"{method}-seed0" / "completions" / "completions_00001.parquet")
        for method in sums.METHODS
    ]
    for other in others:
        assert other["completion"].tolist() == tempo["completion"].tolist()
        assert not other["advantage"].equals(tempo["advantage"])
    results = json.loads((folder / "results.json").read_text())
    assert len({run["accuracy"][0] for run in results["runs"]}) == 1


@pytest.mark.matrix
def test_the_printed_numbers_are_those_of_the_runs(finished):
    folder, printed = finished
    results = json.loads((folder / "results.json").read_text())
    for run in results["runs"]:
        assert f" {100 * run['accuracy'][0]:.1f} " in printed
        assert f" {100 * run['accuracy_at_budget']:.1f} (" in printed
    assert results["sampled_tokens"] == min(run["tokens"][-1] for run in results["runs"])
    td, outcome = (results["negative_credit_on_first_slips"][kind] for kind in ("td", "outcome"))
    assert td > 5 * outcome
    assert f"{td:.0%} of TEMPO's negative TD credit is on the first slip" in " ".join(printed.split())


@pytest.mark.matrix
def test_methods_are_shown_at_equal_numbers_of_sampled_tokens(tmp_path):
    printed = demonstrated(tmp_path, 2, "--methods", "grpo,treerpo")
    numbers = json.loads((tmp_path / "sums-quick/results.json").read_text())
    assert [run["method"] for run in numbers["runs"]] == ["grpo", "treerpo"]
    totals = [run["tokens"][-1] for run in numbers["runs"]]
    assert numbers["sampled_tokens"] == min(totals)
    assert totals[1] < 2 * totals[0]  # twice the generations, each with fewer tokens than the completions hold
    assert "thousand sampled tokens" in printed
    assert "first slip" not in printed  # TEMPO's credit, which nobody trained


class SmallRun(sums.SumsRun):
    """A generation is 4 prompts, and is saved. One evaluation, of the trained policy, tells that the run has ended."""

    def overrides(self) -> dict:
        evaluation = {"eval_strategy": "no", "eval_on_start": False, "do_eval": True}
        return super().overrides() | evaluation | {"per_device_train_batch_size": 16, "save_steps": 2}


@pytest.mark.matrix
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_run_that_was_interrupted_goes_on_from_its_checkpoint(tmp_path):
    run = SmallRun("tempo", tmp_path / "tempo-seed0", max_steps=10_000)  # still runs when the signal arrives
    run.start()
    deadline = time.monotonic() + 900
    while not (run.folder / "checkpoint-2" / "trainer_state.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=900) != 0
    assert not run.finished()

    done = max(int(folder.name.split("-")[1]) for folder in run.folder.glob("checkpoint-*"))
    run = SmallRun("tempo", run.folder, max_steps=done + 4)
    run.start()
    assert run.process.wait(timeout=900) == 0
    assert run.finished()
    history = json.loads((run.folder / "trainer_state.json").read_text())["log_history"]
    steps = [entry["step"] for entry in history if "step_time" in entry]
    assert steps == list(range(1, done + 5))
