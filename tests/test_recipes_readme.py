"""recipes/README.md says what the files say."""

import re
import shlex
from pathlib import Path

import pytest

from tempo_trl.cli import launch_arguments
from tempo_trl.recipe_files import read_recipe, recipe_names, recipe_path, recipes_folder

from .test_recipes import ACCELERATE, arguments_on, devices_of, launch_of

README = (recipes_folder() / "README.md").read_text()


def rows_under(title: str) -> list[list[str]]:
    """Cells of the table that has `title` as its first heading."""
    table = README.partition(f"| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()]


def test_the_grid_is_that_of_the_files():
    cells = {name.rpartition("/")[0] for name in recipe_names()}
    assert sorted(row[0].strip("`") for row in rows_under("recipe")) == sorted(cells)


@pytest.mark.parametrize("row", rows_under("recipe"), ids=lambda row: row[0].strip("`"))
def test_a_row_of_the_grid_holds_the_values_of_its_recipes(row):
    cell, devices, batches, vllm, engine = (text.strip("`") for text in row)
    for method in ("tempo", "grpo"):
        recipe = read_recipe(recipe_path(f"{cell}/{method}"))
        sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
        assert tuple(map(int, re.findall(r"\d+", batches))) == tuple(recipe[key] for key in sizes)
        assert recipe.get("vllm_mode", "none") == vllm
        assert devices_of(f"{cell}/{method}") == int(devices)
        assert Path(launch_of(f"{cell}/{method}").config_file or "none").stem == engine


def test_the_guide_names_what_is_there():
    guide = re.findall("`([^`]+)`", " ".join(row[1] for row in rows_under("at hand")))
    folders = {path.relative_to(recipes_folder()).as_posix() for path in recipes_folder().rglob("*")}
    shapes = {path.rpartition("/")[2] for path in folders}
    assert set(guide) <= folders | shapes


def test_the_commands_start_what_they_say():
    for words in commands():
        assert words[:2] == ["tempo-trl", "train"]
        launch = launch_arguments([word for word in words[2:] if word != "--check"])
        assert launch.training_script == "tempo_trl.train"


def test_eight_devices_learn_what_two_do(monkeypatch):
    launch = launch_arguments(commands()[-1][2:])
    eight = arguments_on(launch.num_processes, launch.training_script_args, monkeypatch).training
    two = arguments_on(2, ["--config", "qwen3-4b/math/two_gpus/tempo"], monkeypatch).training
    assert launch.num_processes == 8
    assert eight.generation_batch_size == two.generation_batch_size == 1920
    updates = [args.generation_batch_size * args.gradient_accumulation_steps for args in (eight, two)]
    assert updates == [384 * args.steps_per_generation for args in (eight, two)]
    differing = {key for key in vars(two) if getattr(two, key) != getattr(eight, key)}
    assert differing == {"gradient_accumulation_steps", "steps_per_generation", "distributed_state"}


def test_every_accelerate_configuration_has_its_row():
    assert [row[0].strip("`") for row in rows_under("configuration")] == list(ACCELERATE)


def test_tests_that_are_named_are_there():
    repository = recipes_folder().parent
    named = re.findall(r"`(tests/[\w/.]+)`", README)
    assert len(named) >= 5
    assert [path for path in named if not (repository / path).exists()] == []
