"""The README says what is true: its commands, files, names and numbers exist."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tempo_trl.runs.recipes import accelerate_config_path, recipe_path

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()
VERBS = tuple(f"tempo-trl {verb} " for verb in ("demo", "evaluate", "compare", "publish", "report", "tree", "credit"))


def commands() -> list[str]:
    """The shell commands of the README, without their comments."""
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_both_commands_are_on_the_first_screen():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_targets_exist(command):
    target = command.split()[1]
    assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [c for c in commands() if "--config " in c])
def test_training_commands_name_recipes_and_flags_that_are_there(command):
    from tempo_trl.launch.cli import main
    from tempo_trl.launch.plan import launch_arguments

    words = shlex.split(command)
    assert recipe_path(words[words.index("--config") + 1]).is_file()
    if "--check" in words:
        assert main(words[1:]) == 0
    elif words[0] == "tempo-trl":
        assert launch_arguments(words[2:]).training_script == "tempo_trl.train"
    else:
        assert accelerate_config_path(words[words.index("--config_file") + 1]).is_file()


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith(VERBS)])
def test_commands_of_the_other_verbs_are_parsed(command):
    from tempo_trl.launch.cli import command_parser

    command_parser().parse_args(shlex.split(command)[1:])


def test_every_command_is_one_that_these_tests_know():
    known = ("make ", "tempo-trl train ", "accelerate launch ", *VERBS)
    assert [c for c in commands() if not c.startswith(known)] == []


def test_ci_runs_what_the_readme_names_and_nothing_else():
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert re.findall(r"^make [\w-]+", script, re.MULTILINE) == [
        "make test",
        "make test-vllm",
        "make test-browser",
        "make style",
    ]


def test_files_that_are_linked_or_named_exist():
    named = re.findall(r"\]\((?!http)([^)#]+)\)", README) + re.findall(
        r"`((?:tests|examples|recipes)/[\w./-]+)`", README
    )
    assert named
    for path in named:
        assert (REPOSITORY / path).exists(), path


def test_the_metrics_glossary_lists_the_metrics_that_are_logged():
    from .trainers.test_logging import METRICS

    assert {name.removeprefix("tempo/") for name in glossary()} >= METRICS


def glossary() -> set[str]:
    """Metrics that the README explains, each with its prefix; `..._L` stands for a number of tokens."""
    cells = re.findall(r"^\| (`\w+/\w+`(?:, `\w+`)*) \|", README, re.MULTILINE)
    names = [re.findall(r"`([\w/]+)`", cell) for cell in cells]
    return {row[0] for row in names} | {f"{row[0].split('/')[0]}/{name}" for row in names for name in row[1:]}


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


def test_the_drop_in_example_runs(tmp_path):
    script = REPOSITORY / "examples" / "drop_in.py"
    assert [line for line in script.read_text().splitlines() if "<--" in line][1:] == [
        "args = TEMPOConfig(  # <-- GRPOConfig(",
        "trainer = TEMPOTrainer(  # <-- GRPOTrainer(",
    ]
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, timeout=300, capture_output=True)


def test_the_example_of_grown_trees_prints_a_tree_s_completions(tmp_path):
    command = [sys.executable, str(REPOSITORY / "examples" / "grow_trees.py")]
    printed = subprocess.run(command, cwd=tmp_path, check=True, timeout=300, capture_output=True, text=True).stdout
    completions = printed.split("tokens for 8 completions.\n")[1].splitlines()
    assert len(completions) == 8
    assert all(completion.count(" | ") == 2 for completion in completions)


def test_versions_agree():
    import tempo_trl

    version = tempo_trl.__version__
    assert f"version: {version}" in (REPOSITORY / "CITATION.cff").read_text()
    assert f"## {version}" in (REPOSITORY / "CHANGELOG.md").read_text()
