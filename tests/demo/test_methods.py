"""The table of all methods: equal numbers of sampled tokens, read from what the runs left on disk."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from tempo_trl.demo import run as demo
from tempo_trl.demo.methods import method_table
from tempo_trl.demo.recipe import GROUP, ROWS
from tempo_trl.demo.results import accuracy_curve
from tempo_trl.methods import METHODS
from tempo_trl.runs.curves import Curve


def curve(tokens, accuracy):
    steps = np.arange(len(accuracy), dtype=float)
    return Curve(steps, np.array(tokens, dtype=float), 10 * steps, np.array(accuracy))


def history(folder, entries):
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries}))
    return folder


def test_every_method_has_a_recipe_for_the_demonstration():
    assert demo.demo_methods() == [
        name
        for name, method in METHODS.items()
        if method.recipe and "/rooms/" not in method.recipe and "/orders/" not in method.recipe  # not of sums
    ]


def test_tokens_are_those_of_the_completions_or_of_the_trees_where_a_shared_one_counts_once(tmp_path):
    evaluations = [{"step": 0, "eval_reward": 0.4}, {"step": 2, "eval_reward": 0.5}, {"step": 4, "eval_reward": 0.6}]
    sampled = [{"step": step, "completions/mean_length": 30.0} for step in (1, 3)]
    entries = [evaluations[0], sampled[0], {"step": 2, "loss": 0.0}, evaluations[1], sampled[1], *evaluations[2:]]
    assert accuracy_curve(history(tmp_path, entries)).tokens.tolist() == [0, 30 * ROWS, 60 * ROWS]
    grown = [entry | ({"rollout/generated_tokens": 100.0} if entry in sampled else {}) for entry in entries]
    trees = ROWS // GROUP
    assert accuracy_curve(history(tmp_path, grown)).tokens.tolist() == [0, 100 * trees, 200 * trees]


def test_a_curve_is_cut_between_two_evaluations():
    cut = curve([0, 100, 200], [0.4, 0.6, 0.9]).at(150)
    assert cut.value.tolist() == pytest.approx([0.4, 0.6, 0.75])
    assert cut.steps[-1] == 1.5
    assert cut.seconds[-1] == 15.0


def test_the_table_has_a_row_a_method_with_its_spread_and_its_paired_difference():
    rows = {
        "grpo": [curve([0, 100], [0.4, end]).at(100) for end in (0.6, 0.7)],
        "treerpo": [curve([0, 100], [0.4, end]).at(100) for end in (0.7, 0.9)],
    }
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(method_table(rows, 12_345, 512))
    printed = console.export_text()
    assert "after 12 thousand sampled tokens" in printed
    assert " 65.0 " in printed
    assert "70.0 to 90.0" in printed
    assert "+15.0 ± " in printed


def test_an_unknown_method_is_answered_with_those_there_are(tmp_path, capsys):
    assert demo.main(str(tmp_path), True, 1, "tempo,gae") == 2
    assert "got --methods 'gae', expected all, or some of tempo, prefix_baseline" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.matrix
def test_agents_are_trained_and_shown_in_the_same_table(tmp_path):
    script = "import tempo_trl.demo.run as d; d.QUICK_STEPS = 2; raise SystemExit(d.main(OUT, True, 1, task='rooms'))"
    command = [sys.executable, "-c", script.replace("OUT", repr(str(tmp_path)))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | {"COLUMNS": "120"})
    assert result.returncode == 0, result.stdout + result.stderr
    numbers = json.loads((tmp_path / "rooms-quick/methods.json").read_text())
    assert {run["method"] for run in numbers["runs"]} == {"hgpo", "grpo"}
    assert "256 problems" in result.stdout


@pytest.mark.matrix
def test_methods_are_trained_and_shown_at_equal_numbers_of_sampled_tokens(tmp_path):
    script = (
        "import tempo_trl.demo.run as d; d.QUICK_STEPS = 2; raise SystemExit(d.main(OUT, True, 1, 'grpo,treerpo'))"
    )
    command = [sys.executable, "-c", script.replace("OUT", repr(str(tmp_path)))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | {"COLUMNS": "120"})
    assert result.returncode == 0, result.stdout + result.stderr
    numbers = json.loads((tmp_path / "sums-quick/methods.json").read_text())
    assert {run["method"] for run in numbers["runs"]} == {"grpo", "treerpo"}
    totals = [run["tokens"][-1] for run in numbers["runs"]]
    assert numbers["sampled_tokens"] == min(totals)
    assert totals[1] < 2 * totals[0]  # twice the generations, each with fewer tokens than the completions hold
    assert "thousand sampled tokens" in result.stdout
