"""The examples and the notebooks run as scripts, offline; jupytext makes notebooks of them."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.py"))


def printed_by(name: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, cwd=folder, check=True, timeout=900, capture_output=True, text=True).stdout


@pytest.mark.matrix
def test_the_drop_in_example_runs(tmp_path):
    script = (EXAMPLES / "drop_in.py").read_text()
    assert [line for line in script.splitlines() if "<--" in line][1:] == [
        "args = TEMPOConfig(  # <-- GRPOConfig(",
        "trainer = TEMPOTrainer(  # <-- GRPOTrainer(",
    ]
    printed_by("drop_in.py", tmp_path)


@pytest.mark.matrix
def test_the_example_of_grown_trees_prints_a_tree_s_completions(tmp_path):
    completions = printed_by("grow_trees.py", tmp_path).split("tokens for 8 completions.\n")[1].splitlines()
    assert len(completions) == 8
    assert all(completion.count(" | ") == 2 for completion in completions)


@pytest.mark.matrix
def test_the_example_of_an_agent_prints_credit_by_turn_and_what_was_learned(tmp_path):
    printed = printed_by("agent_credit.py", tmp_path)
    assert "Credit by turn" in printed
    before, after = re.search(r"solved: (\d+)% before, (\d+)% after", printed).groups()
    assert int(after) > int(before)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, capsys):
    assert runpy.run_path(str(path))
    expected = {"first_run": "Open ", "reading_credit": "2;2-3=   n=3  V=0.67  TD=+0.17"}[path.stem]
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupytext_reads_a_notebook_with_its_title(path):
    notebook = jupytext.read(path)
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}
    assert notebook.cells[0].source.startswith("# ")
