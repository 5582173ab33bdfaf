"""The command line: quick help, and arguments sorted between the run and its launcher."""

import subprocess
import sys

import pytest
import yaml
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from tempo_trl import __version__
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import launch_arguments
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import read_recipe, recipe_names, recipes_folder

RECIPE = "qwen3-1.7b/math/tempo"
LOADED_AFTER_HELP = """
import contextlib, importlib, io, sys
main = importlib.import_module({module!r}).main
for argv in {argvs!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(argv)
print([name for name in {heavy!r} if name in sys.modules])
"""


def loaded_after_help(module: str, argvs: list[list[str]], heavy: list[str]) -> str:
    code = LOADED_AFTER_HELP.format(module=module, argvs=argvs, heavy=heavy)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.matrix
def test_help_imports_nothing_heavy():
    verbs = ("demo", "train", "evaluate", "compare", "report", "tree", "credit", "publish", "recipes", "env")
    argvs = [["--help"], ["--version"], *([verb, "--help"] for verb in verbs)]
    heavy = ["torch", "trl", "transformers", "accelerate", "datasets", "huggingface_hub", "matplotlib"]
    assert loaded_after_help("tempo_trl.launch.cli", argvs, heavy) == "[]"


def test_the_packaged_recipes_are_listed(capsys):
    assert cli.main(["recipes"]) == 0
    assert capsys.readouterr().out.splitlines() == recipe_names()


def test_help_of_train_is_short_and_shows_fields_on_demand(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help", "--check"])
    text = capsys.readouterr().out
    assert all(name in text for name in ("--help-fields", "--check", *METHODS))
    assert cli.main(["train", "--help-fields"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in ("td_coef", "reward_funcs", "learning_rate", "lora_r"))
    assert cli.main(["train", "--method", "grpo", "--help-fields"]) == 0
    assert "--td_coef" not in capsys.readouterr().out


def test_a_recipe_is_shown_with_what_it_extends(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("extends: sums/tempo\nrun_name: 2026\nlearning_rate: 1e-6\n")
    assert cli.main(["train", "--show", str(tmp_path / "mine.yaml")]) == 0
    shown = capsys.readouterr().out
    assert yaml.load(shown, yaml.BaseLoader) == read_recipe(tmp_path / "mine.yaml")
    assert "\nlearning_rate: 1e-6\n" in shown  # as it is written
    assert cli.main(["train", "--show", "nowhere"]) == 2
    assert "recipe 'nowhere' not found" in capsys.readouterr().err


def test_env_prints_our_version_and_those_of_trl(capsys):
    assert cli.main(["env"]) == 0
    lines = dict(
        line.removeprefix("- ").split(": ", 1) for line in capsys.readouterr().out.split("\n") if ": " in line
    )
    assert lines["tempo_trl version"] == __version__
    assert lines["TRL version"].startswith("1.")
    assert lines["PyTorch version"] and lines["accelerator(s)"]


@pytest.mark.parametrize("config", [[], ["--accelerate_config", "ddp"]])
def test_a_flag_is_the_run_s_if_the_run_knows_it_and_accelerate_s_otherwise(config):
    argv = f"--seed 2 --num_processes 2 --config {RECIPE} --multi-gpu --learning-rate=2 --max_steps 2".split()
    arguments = launch_arguments([*argv, *config])
    assert (arguments.module, arguments.training_script) == (True, "tempo_trl.train")
    assert (arguments.num_processes, arguments.multi_gpu) == (2, True)
    assert arguments.training_script_args == f"--seed 2 --config {RECIPE} --learning-rate=2 --max_steps 2".split()


UNKNOWN = [("--num_proceses", "`num_proceses` is unknown"), ("--learning-rat=1", "`learning_rat` is unknown")]
UNKNOWN += [("stray", "got 'stray' without a flag"), ("--num_machines=two", "invalid int value: 'two'")]


@pytest.mark.parametrize(("flag", "message"), UNKNOWN)
def test_what_neither_knows_is_refused_in_one_line_before_the_launch(flag, message, monkeypatch, capsys):
    monkeypatch.setattr("accelerate.commands.launch.launch_command", pytest.fail)
    assert cli.main(["train", "--config", RECIPE, flag, "--num_processes", "2"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_accelerate_config_is_a_file_or_one_of_ours_or_one_of_trl_s(tmp_path, monkeypatch, capsys):
    def config_file(name: str) -> str:
        return launch_arguments(["--accelerate_config", name, "--config", RECIPE]).config_file

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    assert config_file("mine.yaml") == "mine.yaml"
    assert config_file("zero2") == str(recipes_folder() / "accelerate/zero2.yaml")
    assert config_file("fsdp1").endswith("trl/accelerate_configs/fsdp1.yaml")
    assert cli.main(["train", "--config", RECIPE, "--accelerate_config", "zero9"]) == 2
    assert "ddp, fsdp1, fsdp2" in capsys.readouterr().err


@pytest.mark.matrix
@pytest.mark.parametrize("processes", [1, 2])
def test_the_status_of_a_run_that_failed_is_ours(processes, monkeypatch):
    def fail(arguments):
        if processes == 1:
            raise subprocess.CalledProcessError(3, "python")
        raise ChildFailedError("python", {1: ProcessFailure(1, 0, 3, "N/A")})

    monkeypatch.setattr("accelerate.commands.launch.launch_command", fail)
    assert cli.main(["train", "--config", RECIPE]) == 3
