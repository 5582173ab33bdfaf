"""What is installed is what is here."""

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import tempo_trl
from tempo_trl.version import TRL

ROOT = Path(__file__).parents[1]


def test_every_package_is_installed():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = set(setup["options"]["packages"].split())
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "tempo_trl").rglob("__init__.py")}
    assert named == there | {"tempo_trl.recipes"}  # the folder beside the package


def test_every_public_name_can_be_imported():
    assert all(getattr(tempo_trl, name) is not None for name in tempo_trl.__all__)


def test_the_version_of_trl_is_that_of_the_requirements():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    major, minor = map(int, TRL.split("."))
    assert f"trl>={TRL},<{major}.{minor + 1}" in setup["options"]["install_requires"].split()


@pytest.mark.parametrize(("found", "warned"), [("1.15.2", 1), ("1.17.0.dev0", 1), ("1.160.0", 1), ("1.16.3", 0)])
def test_another_trl_is_told_once_in_one_line_at_import(found, warned):
    script = f"import importlib.metadata as m; real = m.version; m.version = lambda name: {found!r} if name == 'trl' "
    script += "else real(name); import tempo_trl, tempo_trl.credit"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.count(f"needs trl {TRL}, found {found}") == warned
    assert len(done.stderr.splitlines()) == warned
