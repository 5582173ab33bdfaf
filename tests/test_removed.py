"""What the package no longer has is answered with what to use instead, and with the commit that still has it."""

import copy
import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from tempo_trl import GiGPOConfig, TEMPOConfig, TokenCreditConfig
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import parse
from tempo_trl.removed import COMMIT, REMOVED

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
FIELDS = ["merge_states"]
GONE = f"`{{}}` was removed.* Commit {COMMIT} still has it"


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("config_cls", [TokenCreditConfig, TEMPOConfig])
def test_a_field_that_went_is_named_at_construction(name, config_cls, tmp_path):
    with pytest.raises(ValueError, match=GONE.format(name)):
        config_cls(str(tmp_path), **{name: True})


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("method", ["tempo", "grpo"])
def test_a_recipe_and_a_flag_are_answered_alike(name, method, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(f"method: {method}\n{name}: true\n")
    with pytest.raises(ValueError, match=GONE.format(name)):
        parse(["--config", str(tmp_path / "recipe.yaml")])
    assert cli.main(["train", "--config", f"demo/{method}", f"--{name}", "true"]) == 2
    assert COMMIT in capsys.readouterr().err


def test_a_flag_of_another_verb_is_answered_too(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["credit", "agents.jsonl", "--merge-states"])
    assert ended.value.code == 2
    assert REMOVED["merge_states"] in capsys.readouterr().err


def test_a_field_that_never_was_gets_the_error_of_python(tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'merge_state'"):
        TEMPOConfig(str(tmp_path), merge_state=True)


def test_a_configuration_is_copied_and_pickled_as_before(tmp_path):
    args = GiGPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    for again in (copy.deepcopy(args), pickle.loads(pickle.dumps(args))):
        assert again.to_dict() == args.to_dict()


def test_what_is_gone_is_gone_and_the_changelog_names_it():
    known = {field.name for config in (TEMPOConfig, TokenCreditConfig, GiGPOConfig) for field in fields(config)}
    assert known.isdisjoint(REMOVED)
    section = CHANGELOG.read_text(encoding="utf-8").partition("### Removed\n")[2].partition("\n### ")[0]
    for name in REMOVED:
        (line,) = [line for line in section.split("\n- ") if f"`{name}`" in line]
        assert COMMIT in line
