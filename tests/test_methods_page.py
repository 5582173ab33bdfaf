"""docs/contributing/new_method.md adds a method: its files, written into a copy of the package, are all it takes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from .quick_python import PYTHON

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "contributing" / "new_method.md").read_text()
GUIDE = (DOCS / "guides" / "credit_function.md").read_text()


def blocks() -> dict[str, str]:
    """The page's code blocks that have a title."""
    return dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("tempo_trl", "recipes"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    files = blocks()
    table = folder / "tempo_trl" / "methods" / "__init__.py"
    written = table.read_text()
    table.write_text(written.replace("METHODS = {\n", "METHODS = {\n" + files.pop("METHODS"), 1))
    assert table.read_text() != written
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def tempo_trl(house: Path, *arguments: str, python: str | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"}
    command = [python or sys.executable, "-m", "tempo_trl", *arguments]
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_three_files_make_a_method_that_trains_reports_and_compares(house):
    tempo_trl(house, "train", "--config", "sums/discounted", python=PYTHON)  # no other test launches with this one
    run = house / "runs/sums/discounted"
    assert sorted((run / "tempo").glob("trees_*.parquet"))
    tempo_trl(house, "report", str(run))
    assert "discounted GRPO" in (run / "report.html").read_text()
    assert "discounted" in tempo_trl(house, "compare", str(run), "-o", str(house / "compared"))
    assert "discounted" in tempo_trl(house, "train", "--help")


def test_the_script_of_the_guide_trains(tiny_model, tmp_path, monkeypatch):
    script = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
    from tests.trainers.recording import config, parity, questions

    script = script.replace('model="Qwen/Qwen3-0.6B"', f"model={tiny_model!r}")
    script = script.replace('TokenCreditConfig(output_dir="Qwen3-0.6B-discounted")', "args")
    from tempo_trl import TokenCreditConfig

    namespace = {"args": config(tmp_path, TokenCreditConfig), "reward": parity, "dataset": questions()}
    exec(script, namespace)
    assert namespace["trainer"].state.global_step == 3


def test_a_discount_of_one_is_grpo_s_advantage():
    exec(blocks()["tempo_trl/methods/discounted.py"], names := {})
    batch = SimpleNamespace(completion_ids=torch.zeros(2, 3), lengths=torch.tensor([3, 1]), advantages=torch.randn(2))
    assert torch.equal(names["discounted_credit"](batch, 1.0), batch.advantages[:, None].expand(2, 3))
