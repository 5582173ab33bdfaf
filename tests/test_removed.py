"""
What the package no longer has is answered with what to use instead, and with the commit that still has it. Names of
the last release still work, with a warning that says the new one.
"""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import tempo_trl
from tempo_trl import Batch, Credit
from tempo_trl.demo.run import methods_to_train
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import class_of, parse
from tempo_trl.methods import METHODS
from tempo_trl.removed import COMMIT, FORMER, REMOVED
from tempo_trl.runs.log import training_log
from tempo_trl.runs.metrics import FORMER_METRICS, METRICS
from tempo_trl.runs.recipes import recipe_names, recipe_path

from .trainers.recording import config

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


# As flags, and as the text of a recipe.
WENT = {
    METHOD: (["--method", METHOD], f"method: {METHOD}\ntask: sums\nreward_funcs: math_reward\n"),
    **{
        name: (["--config", "sums/prefix_baseline", f"--{name}", "2"], f"method: prefix_baseline\n{name}: 2\n")
        for name in FIELDS
    },
}


@pytest.mark.parametrize("name", WENT)
def test_a_method_and_fields_that_went_are_answered_as_a_flag_and_in_a_recipe(name, tmp_path, capsys):
    flags, text = WENT[name]
    (tmp_path / "recipe.yaml").write_text(text)
    for arguments in (flags, ["--config", str(tmp_path / "recipe.yaml")]):
        with pytest.raises(ValueError, match=gone(name)):
            parse(arguments)
        assert cli.main(["train", *arguments]) == 2
        assert re.search(gone(name), capsys.readouterr().err)


@pytest.mark.parametrize("name", [*RECIPES, f"recipes/{RECIPES[0]}.yaml"])
def test_a_recipe_that_went_is_named(name, capsys):
    assert cli.main(["train", "--config", name]) == 2
    assert re.search(gone(METHOD), capsys.readouterr().err)


def test_a_users_own_file_may_have_the_name(tmp_path):
    (tmp_path / f"{METHOD}.yaml").write_text("method: tempo\n")
    assert recipe_path(str(tmp_path / f"{METHOD}.yaml")).is_file()


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


# Former names

WITH_FORMER_NAMES = [
    (method, old)
    for method in METHODS
    for old, new in FORMER.items()
    if new in {field.name for field in fields(class_of(method, "Config"))}
    and (old != "min_advantage" or method == "grpo_lambda")  # the floor of all methods has only the new name
]


@pytest.mark.parametrize(("method", "old"), WITH_FORMER_NAMES)
def test_a_field_works_under_its_former_name(method, old, tmp_path):
    kind, new = class_of(method, "Config"), FORMER[old]
    shape = {"num_generations": 8}
    usual = config(tmp_path, kind, **shape)
    value = {"state_history": 3, "advantage_floor": None, "count_shared_tokens": "per_leaf"}[new]
    with pytest.warns(FutureWarning, match=f"`{old}` is called `{new}` now"):
        args = config(tmp_path, kind, **shape, **{old: value})
    assert getattr(args, new) == value != getattr(usual, new)
    with pytest.warns(FutureWarning, match=f"`{old}` is called `{new}` now"):
        setattr(args, old, getattr(usual, new))
    with pytest.warns(FutureWarning):
        assert getattr(args, old) == getattr(usual, new)


def test_every_former_name_belongs_to_a_field():
    assert {old for _, old in WITH_FORMER_NAMES} == FORMER.keys()


def a_batch(**fields):
    rows, inside = torch.arange(2), torch.ones(2, 3, dtype=torch.int64)
    numbers = {"rewards": rows.float(), "rewards_per_func": rows.float()[:, None], "observations": None, "columns": {}}
    masks = {"loss_mask": inside.bool(), "turns": 0 * inside, "steps": 0 * inside, "training": True}
    ids = {"completion_ids": inside, "lengths": inside.sum(dim=1), "num_generations": 2, "prompts": 0 * rows}
    return Batch(**ids, **numbers, **masks, **fields)


def test_a_batch_and_credit_work_under_the_former_names_of_their_fields():
    advantages, everyone = torch.tensor([-1.0, 1.0]), torch.ones(2, dtype=torch.bool)
    batch = a_batch(advantages=advantages, counted=everyone)
    with pytest.warns(FutureWarning, match="`owned` is called `counted` now"):
        assert batch.owned is everyone
    with pytest.warns(FutureWarning, match="`outcome` is called `advantages` now"):
        assert batch.outcome is advantages
    with pytest.warns(FutureWarning, match="`grown` is called `tree_rollouts` now"):
        assert batch.grown is None
    with pytest.warns(FutureWarning, match="`outcome` is called `sequence_advantages` now"):
        credit = Credit(advantages, outcome=advantages)
    assert credit.sequence_advantages is advantages
    with pytest.warns(FutureWarning):
        assert replace(credit, outcome=-advantages).sequence_advantages.tolist() == [1.0, -1.0]


def test_a_log_of_the_last_release_is_read_under_the_names_of_this_one(tmp_path):
    assert {*FORMER_METRICS.values()} <= METRICS.keys()
    entry = {"step": 1, "reward": 0.5} | {f"{mode}{old}": 0.25 for old in FORMER_METRICS for mode in ("", "eval_")}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [entry]}))
    new = {f"{mode}{name}": 0.25 for name in FORMER_METRICS.values() for mode in ("", "eval_")}
    assert training_log(tmp_path) == [{"step": 1, "reward": 0.5} | new]
