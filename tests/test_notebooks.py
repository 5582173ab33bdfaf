"""The notebooks run as scripts, offline and in seconds, and jupytext makes notebooks of them."""

import runpy
from pathlib import Path

import jupytext
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, capsys):
    cells = runpy.run_path(str(path))
    assert cells
    printed = capsys.readouterr().out
    expected = {"first_run": "Open ", "reading_credit": "2;2-3=   n=3  V=0.67  TD=+0.17"}[path.stem]
    assert expected in printed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupytext_reads_a_notebook_with_its_title(path):
    notebook = jupytext.read(path)
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}
    assert notebook.cells[0].source.startswith("# ")
