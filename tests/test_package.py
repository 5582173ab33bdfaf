"""What is installed is what is here."""

from configparser import ConfigParser
from pathlib import Path

import tempo_trl

ROOT = Path(__file__).parents[1]


def test_every_package_is_installed():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = set(setup["options"]["packages"].split())
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "tempo_trl").rglob("__init__.py")}
    assert named == there | {"tempo_trl.recipes"}  # the folder beside the package


def test_every_public_name_can_be_imported():
    assert all(getattr(tempo_trl, name) is not None for name in tempo_trl.__all__)
