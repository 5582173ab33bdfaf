"""A study of agents from end to end, shortened."""

import json

import pytest

from benchmarks.agents.runs import ROWS, AgentRun, AgentStart
from benchmarks.agents.studies import STUDIES
from benchmarks.agents.worlds import ROOMS
from benchmarks.learning.__main__ import main
from benchmarks.learning.runs import Budget
from tempo_trl.launch.arguments import parse


@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_is_a_recipe_that_the_parser_takes(name, tmp_path):
    for arm in STUDIES[name].arms:
        run = AgentRun(AgentStart.beneath(tmp_path, arm.task, 40), arm.method, 1e-3, 0, tmp_path, arm.changes)
        arguments = parse(["--config", str(run.prepare())])
        assert arguments.script.method == arm.method
        assert arguments.script.environment_factory == arm.task.environment
        assert arguments.training.max_tool_calling_iterations == arm.task.make.turns
        assert arguments.training.steps_per_generation * arguments.training.per_device_train_batch_size == ROWS


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_a_quick_study_writes_its_figure_and_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.learning.experiment.QUICK_BUDGET", Budget(1, 1))
    flags = ["--quick", "--parallel", "1", "--output", str(tmp_path), "--figures", str(tmp_path / "figures")]
    assert main(["rooms", *flags], "agents") == 0
    numbers = json.loads((tmp_path / "figures" / "agents_rooms.json").read_text())
    assert numbers["command"] == "python -m benchmarks.agents rooms --quick"
    assert [arm["label"] for arm in numbers["results"]] == ["grpo", "tempo"]
    start = numbers["starts"]["rooms"]
    assert start["expected"] == ROOMS.expected_accuracy
    assert start["measured"] > 0.15
    assert (tmp_path / "figures" / "agents_rooms.png").stat().st_size < 150_000
