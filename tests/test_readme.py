"""The README says what is true: its numbers are those of the code. tests/test_docs.py reads its commands and files."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()


def test_ci_runs_what_the_readme_names_and_nothing_else():
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert re.findall(r"^make [\w-]+", script, re.MULTILINE) == [
        "make test-all",
        "make style",
    ]


def test_the_numbers_of_the_hand_worked_group_are_those_of_the_code(capsys):
    group = runpy.run_path(str(REPOSITORY / "examples" / "read_a_tree.py"))
    printed = capsys.readouterr().out
    for line in printed.splitlines()[:6]:
        assert line in README, line
    slip, right = group["tempo"][1, 10].item(), group["tempo"][1, 4].item()
    assert f"= {slip:.2f} |" in README
    assert f"= {right:.2f}." in README
    assert f"GRPO gives that token {group['grpo'][1, 10]:.2f}" in README
    assert f"{group['rewards'].std().item() + 1e-4:.4f}" in README
    assert torch.equal(group["grpo"][1], torch.full((13,), group["grpo"][1, 0].item()))


@pytest.mark.matrix
def test_the_drop_in_example_runs(tmp_path):
    script = REPOSITORY / "examples" / "drop_in.py"
    assert [line for line in script.read_text().splitlines() if "<--" in line][1:] == [
        "args = TEMPOConfig(  # <-- GRPOConfig(",
        "trainer = TEMPOTrainer(  # <-- GRPOTrainer(",
    ]
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, timeout=900, capture_output=True)


@pytest.mark.matrix
def test_the_example_of_grown_trees_prints_a_tree_s_completions(tmp_path):
    command = [sys.executable, str(REPOSITORY / "examples" / "grow_trees.py")]
    printed = subprocess.run(command, cwd=tmp_path, check=True, timeout=900, capture_output=True, text=True).stdout
    completions = printed.split("tokens for 8 completions.\n")[1].splitlines()
    assert len(completions) == 8
    assert all(completion.count(" | ") == 2 for completion in completions)


@pytest.mark.matrix
def test_the_example_of_an_agent_prints_credit_by_turn_and_what_was_learned(tmp_path):
    command = [sys.executable, str(REPOSITORY / "examples" / "agent_credit.py")]
    printed = subprocess.run(command, cwd=tmp_path, check=True, timeout=900, capture_output=True, text=True).stdout
    assert "Credit by turn" in printed
    before, after = re.search(r"solved: (\d+)% before, (\d+)% after", printed).groups()
    assert int(after) > int(before)


def test_versions_agree():
    import tempo_trl

    version = tempo_trl.__version__
    assert f"version: {version}" in (REPOSITORY / "CITATION.cff").read_text()
    assert f"## {version}" in (REPOSITORY / "CHANGELOG.md").read_text()
