"""Fields of public recipes that are gone are answered with what replaces them, not with the nearest spelling."""

from dataclasses import fields
from pathlib import Path

import pytest
from trl import GRPOConfig, ModelConfig

from tempo_trl.launch import cli
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.fields import TrainArguments
from tempo_trl.launch.renamed import DROPPED, RENAMED
from tempo_trl.runs.recipes import recipes_folder

GUIDE = Path(__file__).parents[2] / "docs/get_started.md"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch_dtype: bfloat16", "`torch_dtype` is called `dtype` now"),
        ("dataset_id_or_path: a/b", "`dataset_id_or_path` is called `dataset_name` now"),
        ("max_prompt_length: 512", "`max_prompt_length` is gone: filter long prompts out of the dataset"),
        ("overwrite_output_dir: true", "`overwrite_output_dir` is gone: remove it"),
    ],
)
def test_a_recipe_and_a_flag_are_answered_alike(text, message, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse(["--config", str(tmp_path / "recipe.yaml")])
    name, value = text.split(": ")
    assert cli.main(["train", "--config", "sums/tempo", f"--{name}", value]) == 2
    assert message in capsys.readouterr().err


def test_what_is_gone_is_gone_and_what_replaces_it_exists():
    known = {field.name for kind in (GRPOConfig, ModelConfig, TrainArguments) for field in fields(kind)}
    assert {*RENAMED.values()} <= known
    assert known.isdisjoint({*RENAMED, *DROPPED})


def test_the_guide_lists_all_of_them():
    rows = [f"| `{name}` | `{new}` |" for name, new in RENAMED.items()]
    rows += [f"| `{name}` | {change} |" for name, change in DROPPED.items()]
    table = GUIDE.read_text(encoding="utf-8").partition("| field | instead |\n|---|---|\n")[2].partition("\n\n")[0]
    assert sorted(table.splitlines()) == sorted(rows)


def test_the_former_name_of_a_field_of_ours_still_works_in_a_recipe(tmp_path):
    recipe = (
        (recipes_folder() / "sums/grpo_lambda.yaml")
        .read_text()
        .replace("advantage_floor: -0.1", "min_advantage: -0.3")
    )
    (tmp_path / "recipe.yaml").write_text(recipe)
    with pytest.warns(FutureWarning, match="`min_advantage` is called `advantage_floor` now"):
        assert parse(["--config", str(tmp_path / "recipe.yaml")]).training.advantage_floor == -0.3
