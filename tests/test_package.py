"""What is installed is what is here, and its rooms import only downwards: `[importlinter]` in setup.cfg."""

import os
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

import pytest

import tempo_trl
from tempo_trl.version import TRL

ROOT = Path(__file__).parents[1]
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_every_package_is_installed():
    named = set(SETUP["options"]["packages"].split())
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "tempo_trl").rglob("__init__.py")}
    assert named == there | {"tempo_trl.recipes"}  # the folder beside the package


def test_imports_only_go_down_and_no_files_import_each_other_in_a_circle():
    # In a process of its own: import-linter switches off the loggers that other tests read.
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports('setup.cfg', cache_dir=None))"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_public_name_can_be_imported_and_type_checkers_see_it():
    assert all(getattr(tempo_trl, name) is not None for name in tempo_trl.__all__)
    assert set(tempo_trl.__all__) == {*tempo_trl._PUBLIC, "__version__"}
    lines = [f"{name}: object = tempo_trl.{name}" for name in tempo_trl.__all__ if name != "__version__"]
    assert checked_types("\n".join(["import tempo_trl", *lines])) == []


SCRIPT = """
from tempo_trl import Batch, SpanReward, TEMPOConfig, TEMPOTrainer

def long_enough(completions: list[str], **columns: object) -> list[float]:
    return [float(len(text) > 9) for text in completions]

args = TEMPOConfig(output_dir="run", td_coef=0.5)
trainer = TEMPOTrainer("Qwen/Qwen3-0.6B", long_enough, args)
trainer.train()
spans: list[SpanReward] = [SpanReward("city", 1.0, 4, 9)]
"""


@pytest.mark.matrix
def test_a_script_is_checked_by_mypy_and_its_mistakes_are_found():
    assert checked_types(SCRIPT) == []
    wrong = SCRIPT.replace("td_coef=0.5", 'td_coef="much"').replace("enough, args)", "enough, args, credit=1)")
    assert [error.split('"')[1] for error in checked_types(wrong)] == ["td_coef", "credit"]
    (unknown,) = checked_types("from tempo_trl import TEMPOTrainr")
    assert "TEMPOTrainer" in unknown


def checked_types(script: str) -> list[str]:
    """mypy's errors in a script. It does not read the packages that ours imports, which would take minutes."""
    skipped = ("torch", "transformers", "trl", "datasets", "pandas", "numpy", "scipy", "rich", "matplotlib", "peft")
    config = "[mypy]\nfollow_imports = silent\n"
    config += "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in skipped)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mypy.ini").write_text(config)
        command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "-c", script]
        environment = os.environ | {"MYPYPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def test_the_version_of_trl_is_that_of_the_requirements():
    major, minor = map(int, TRL.split("."))
    assert f"trl>={TRL},<{major}.{minor + 1}" in SETUP["options"]["install_requires"].split()


def test_versions_agree():
    assert f"version: {tempo_trl.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {tempo_trl.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.matrix
@pytest.mark.parametrize(("found", "warned"), [("1.15.2", 1), ("1.17.0.dev0", 1), ("1.160.0", 1), ("1.16.3", 0)])
def test_another_trl_is_told_once_in_one_line_at_import(found, warned):
    script = f"import importlib.metadata as m; real = m.version; m.version = lambda name: {found!r} if name == 'trl' "
    script += "else real(name); import tempo_trl, tempo_trl.credit"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.count(f"needs trl {TRL}, found {found}") == warned
    assert len(done.stderr.splitlines()) == warned
