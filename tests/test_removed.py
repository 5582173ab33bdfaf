"""What the package no longer has is answered with what to use instead, and with the commit that still has it."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import tempo_trl
from tempo_trl.demo.run import methods_to_train
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import class_of, parse
from tempo_trl.methods import METHODS
from tempo_trl.removed import COMMIT, REMOVED
from tempo_trl.runs.recipes import recipe_names, recipe_path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
CLASSES = ["KernelBaselineConfig", "KernelBaselineTrainer"]
FIELDS = ["similarity_block", "similarity_order"]
METHOD = "kernel_baseline"
RECIPES = [f"{folder}/{METHOD}" for folder in ("sums", "qwen3-1.7b/math", "smollm2-135m/instructions")]


def gone(name: str) -> str:
    """The error that names what was removed, as a regular expression."""
    return f"`{name}` was removed .*not ahead of the prefix baseline: {re.escape(REMOVED[name])}. Commit {COMMIT}"


@pytest.mark.parametrize("name", CLASSES)
def test_the_import_of_a_class_that_went_says_so(name):
    with pytest.raises(ImportError, match=gone(name)):
        exec(f"from tempo_trl import {name}")
    assert name not in dir(tempo_trl)


def test_a_name_that_never_was_gets_the_error_of_python():
    with pytest.raises(ImportError, match="cannot import name 'KernelTrainer'"):
        exec("from tempo_trl import KernelTrainer")


@pytest.mark.parametrize("arguments", [["--method", METHOD], ["--config", "RECIPE"]])
def test_the_method_is_answered_as_a_flag_and_in_a_recipe(arguments, tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"method: {METHOD}\ntask: sums\nreward_funcs: math_reward\n")
    arguments = [str(recipe) if word == "RECIPE" else word for word in arguments]
    with pytest.raises(ValueError, match=gone(METHOD)):
        parse(arguments)
    assert cli.main(["train", *arguments]) == 2
    assert re.search(gone(METHOD), capsys.readouterr().err)


@pytest.mark.parametrize("name", [*RECIPES, f"recipes/{RECIPES[0]}.yaml"])
def test_a_recipe_that_went_is_named(name, capsys):
    assert cli.main(["train", "--config", name]) == 2
    assert re.search(gone(METHOD), capsys.readouterr().err)


def test_a_users_own_file_may_have_the_name(tmp_path):
    (tmp_path / f"{METHOD}.yaml").write_text("method: tempo\n")
    assert recipe_path(str(tmp_path / f"{METHOD}.yaml")).is_file()


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_went_is_answered_as_a_flag_and_in_a_recipe(name, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(f"method: prefix_baseline\n{name}: 2\n")
    with pytest.raises(ValueError, match=gone(name)):
        parse(["--config", str(tmp_path / "recipe.yaml")])
    assert cli.main(["train", "--config", "sums/prefix_baseline", f"--{name}", "2"]) == 2
    assert re.search(gone(name), capsys.readouterr().err)


def test_the_demo_answers_the_method_too():
    with pytest.raises(ValueError, match=gone(METHOD)):
        methods_to_train(f"tempo,{METHOD}", ("tempo",), "sums")


def test_what_is_gone_is_gone_and_the_changelog_names_it_with_the_commit():
    assert REMOVED.keys() == {*CLASSES, METHOD, *FIELDS}
    known = {field.name for method in METHODS for field in fields(class_of(method, "Config"))}
    assert known.isdisjoint(REMOVED)
    assert not [name for name in recipe_names() if METHOD in name]
    entries = CHANGELOG.read_text(encoding="utf-8").split("\n- ")
    (entry,) = [entry for entry in entries if f"`{METHOD}`" in entry]
    assert COMMIT in entry
    assert all(f"`{name}`" in entry for name in REMOVED)
