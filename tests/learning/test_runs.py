"""Runs and studies from end to end, shortened: in workers and alone, stopped and resumed, to the figure."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from transformers import TrainerControl, TrainerState

from benchmarks.learning import __main__ as cli
from benchmarks.learning import workers
from benchmarks.learning.chain import Chain
from benchmarks.learning.experiment import QUICK_HELD_OUT
from benchmarks.learning.plan import Plan
from benchmarks.learning.results import read_results, read_run
from benchmarks.learning.runs import ROWS, Budget, Run
from benchmarks.learning.starts import Start
from benchmarks.learning.studies import STUDIES
from benchmarks.learning.training import TokenClock
from tempo_trl.launch.arguments import parse

from ..quick_python import PYTHON

REPOSITORY = Path(__file__).parents[2]
SILENT = Console(file=open(os.devnull, "w"))  # noqa: SIM115


@pytest.fixture(scope="module", autouse=True)
def workers_at_once(quick_python_of_module):
    """The server of the workers is the first that a test starts, and stays."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory, workers_at_once):
    """Folder of a quick study, of which the command has ended well."""
    folder = tmp_path_factory.mktemp("learning")
    assert cli.main(arguments(folder)) == 0
    return folder


def arguments(folder, study="plan"):
    flags = ["--quick", "--parallel", "1", "--output", str(folder), "--figures", str(folder / "figures")]
    return [study, *flags]


def weights(run):
    return (run.folder / "model.safetensors").read_bytes()


def quick_run(folder, method, output=None, changes=(), seed=0):
    start = Start(Plan(), folder / "quick" / "starts" / "plan-0.4-40", 40, QUICK_HELD_OUT)
    return Run(start, method, 1e-3, seed, output or folder / "quick", changes, Budget(2, 2))


@pytest.mark.matrix
def test_a_quick_study_writes_its_figure_and_numbers(quick):
    assert (quick / "figures" / "learning_plan.png").read_bytes().startswith(b"\x89PNG")
    assert (quick / "figures" / "learning_plan.png").stat().st_size < 150_000
    numbers = json.loads((quick / "figures" / "learning_plan.json").read_text())
    assert numbers["command"] == "python -m benchmarks.learning plan --quick"
    assert numbers["seeds"] == [0]
    assert numbers["commits_of_runs"]
    assert {arm["label"]: arm["learning_rate"] for arm in numbers["results"]} == {"grpo": 1e-3, "tempo": 1e-3}
    for arm in numbers["results"]:
        assert arm["tokens"] == 2 * ROWS * Plan().tokens
        assert arm["runs"][0]["tokens"][-1] >= arm["tokens"]
    assert len({arm["runs"][0]["accuracy"][0] for arm in numbers["results"]}) == 1  # one start, one evaluation of it
    for result in read_results(STUDIES["plan"], numbers):
        assert len(result.by_tokens()["iqm"]) == len(result.by_seconds()["iqm"]) > 2


@pytest.mark.matrix
def test_a_worker_trains_what_a_fresh_process_does_whatever_ran_before(quick, tmp_path):
    """The worker's server had already trained a start and a run of GRPO."""
    worker, fresh = quick_run(quick, "tempo"), quick_run(quick, "tempo", tmp_path)
    command = [PYTHON, "-m", "benchmarks.learning.training", str(fresh.prepare())]
    environment = os.environ | workers.ENVIRONMENT
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert weights(fresh) == weights(worker)
    assert read_run(fresh).value.tolist() == read_run(worker).value.tolist()
    assert weights(worker) != weights(quick_run(quick, "grpo"))


@pytest.mark.matrix
def test_an_interrupted_run_goes_on_from_its_checkpoint_to_the_same_weights(quick, tmp_path):
    run = quick_run(quick, "tempo", tmp_path, (("save_steps", 2), ("save_total_limit", 9)))
    workers.finish([run], 1, SILENT, "")
    whole, curve = weights(run), read_run(run)
    kept = ("checkpoint-2", "recipe.yaml", "budget.json")
    for path in run.folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    workers.finish([run], 1, SILENT, "")
    assert weights(run) == whole
    resumed = read_run(run)
    again = np.isin(resumed.tokens, curve.tokens)  # TRL also evaluates where it goes on
    assert resumed.tokens[again].tolist() == curve.tokens.tolist()
    assert resumed.value[again].tolist() == curve.value.tolist()
    steps = [entry["step"] for entry in json.loads((run.folder / "trainer_state.json").read_text())["log_history"]]
    assert min(steps) == 0  # of the part before the interruption


def any_run(method, changes=(), task=None):
    task = task or Chain()
    return Run(Start(task, Path(f"{task.name}-1"), 1), method, 1e-3, 0, Path("out"), changes)


@pytest.mark.parametrize("size", [3, 5, 7, 8, 9, 16])
def test_a_generation_has_whole_groups_in_both_updates(size):
    run = any_run("grpo", (("num_generations", size),))
    assert run.rows % (2 * size) == 0
    assert 0.94 * ROWS < run.rows <= ROWS
    assert run.recipe["per_device_train_batch_size"] * int(run.recipe["steps_per_generation"]) == run.rows


@pytest.mark.parametrize("name", ["chain", "floor"])
def test_every_arm_is_a_recipe_that_the_parser_takes(name, tmp_path):
    for arm in STUDIES[name].arms:
        start = Start(arm.task, tmp_path / arm.task.name, 1)
        arguments = parse(["--config", str(Run(start, arm.method, 1e-3, 0, tmp_path, arm.changes).prepare())])
        assert arguments.script.method == arm.method


def clock_at(step, entries, tokens=100, evaluations=2):
    """What the clock decides at a step of a run with groups of 2 and 4 rows, after what was logged."""
    state, control = TrainerState(global_step=step), TrainerControl()
    state.log_history = [{"step": at, **entry} for at, entry in entries]
    TokenClock(tokens, evaluations, rows=4, group=2).on_log(None, state, control)
    return control.should_evaluate, control.should_training_stop


def test_the_clock_counts_a_tokens_once_that_the_rows_of_a_tree_share():
    alone = {"completions/mean_length": 10.0}  # 4 rows of 10
    tree = alone | {"rollout/generated_tokens": 12.5}  # 2 trees of 12.5
    update = (2, {"loss": 0.0})
    assert clock_at(2, [(1, alone), update]) == (False, False)  # 40 of 100 tokens
    assert clock_at(4, [(1, alone), update, (3, alone), (4, {})]) == (True, False)  # 80: past 50
    assert clock_at(4, [(1, tree), update, (3, tree), (4, {})]) == (True, False)  # 50
    assert clock_at(2, [(1, tree), update]) == (False, False)  # 25


def test_the_clock_ends_a_run_after_the_generation_that_spends_its_budget():
    long = {"completions/mean_length": 25.0}
    assert clock_at(1, [(1, long)]) == (False, False)  # between the updates of a generation
    assert clock_at(2, [(1, long), (2, {})]) == (True, True)
