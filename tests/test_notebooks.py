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
def test_a_notebook_opens_with_what_its_reader_learns_and_jupytext_reads_it(path):
    notebook = jupytext.read(path)
    kinds = {cell.cell_type for cell in notebook.cells}
    assert kinds == {"markdown", "code"}
    assert notebook.cells[0].source.startswith("# ")
    assert "\nYou learn " in notebook.cells[0].source
    assert jupytext.reads(jupytext.writes(notebook, fmt="ipynb"), fmt="ipynb").cells == notebook.cells
