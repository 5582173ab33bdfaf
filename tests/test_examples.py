"""The examples and the notebooks run as scripts, offline; jupytext makes notebooks of them."""

import re
import runpy
from pathlib import Path

import jupytext
import pytest
from trl import GRPOTrainer

from tempo_trl.demo.language_model import Source

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.py"))


@pytest.fixture
def printed_by(tmp_path, monkeypatch, capsys):
    """A function that runs an example, with other numbers, in a folder of its own and returns what it printed."""

    def run(name: str, *others: tuple[str, str]) -> str:
        monkeypatch.chdir(tmp_path)
        text = (EXAMPLES / name).read_text()
        for number, other in others:
            assert number in text
            text = text.replace(number, other)
        (tmp_path / name).write_text(text)
        runpy.run_path(str(tmp_path / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.matrix
def test_the_drop_in_example_runs(printed_by):
    script = (EXAMPLES / "drop_in.py").read_text()
    assert [line for line in script.splitlines() if "<--" in line][1:] == [
        "args = TEMPOConfig(  # <-- GRPOConfig(",
        "trainer = TEMPOTrainer(  # <-- GRPOTrainer(",
    ]
    printed_by("drop_in.py")


@pytest.mark.matrix
def test_the_example_of_grown_trees_prints_a_tree_s_completions(printed_by):
    completions = printed_by("grow_trees.py").split("tokens for 8 completions.\n")[1].splitlines()
    assert len(completions) == 8
    assert all(completion.count(" | ") == 2 for completion in completions)


@pytest.mark.matrix
def test_the_example_of_an_agent_prints_credit_by_turn_and_what_was_learned(printed_by):
    printed = printed_by("agent_credit.py", ("max_steps=40", "max_steps=12"))
    assert "Credit by turn" in printed
    before, after = re.search(r"solved: (\d+)% before, (\d+)% after", printed).groups()
    assert int(after) > int(before)


def test_the_example_of_fine_tuning_first_prints_the_checks_before_between_and_after(
    printed_by, tiny_model, monkeypatch
):
    monkeypatch.setattr("tempo_trl.demo.language_model.language_model", lambda: Source(tiny_model, "a folder"))
    # The example changes how TRL samples, which is taken back after the test.
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", GRPOTrainer._generate_single_turn)
    small = [("range(128)", "range(4)"), ("max_steps=12", "max_steps=1"), ("max_steps=4", "max_steps=1")]
    printed = printed_by("fine_tune_first.py", *small, ("max_completion_length=56", "max_completion_length=8"))
    rows = re.findall(r"^│ (\w+) +(?:│ [\d.]+% +){3}│$", printed, re.MULTILINE)
    assert rows == ["date", "customer", "city", "item", "quantity", "express", "json", "additional", "outside", "mean"]


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
