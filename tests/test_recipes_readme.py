"""recipes/README.md says what the files say."""

import re
import shlex
from pathlib import Path

import pytest

from tempo_trl.launch.batch_sizes import batch_sizes_of, known_prompts
from tempo_trl.launch.plan import launch_arguments
from tempo_trl.runs.recipes import read_recipe, recipe_names, recipe_path, recipes_folder

from .test_recipes import ACCELERATE, arguments_on, devices_of, launch_of

NAMES = (
    *("tempo", "grpo", "hepo", "span_credit", "ppo", "prefix_baseline", "anchor_baseline", "gigpo", "hgpo"),
    *("grpo_lambda", "treerpo", "treerpo_entropy", "tempo_recommended"),
)
README = (recipes_folder() / "README.md").read_text()


def rows_under(title: str) -> list[list[str]]:
    """Cells of the table that has `title` as its first heading."""
    table = README.partition(f"| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()]


def grid_rows(cell: str) -> list[str]:
    """The rows of the grid for the recipes of a folder, from its files: methods of which all is the same share one."""
    rows = {}
    for method in NAMES:
        if f"{cell}/{method}" in recipe_names():
            rows.setdefault(grid_columns(f"{cell}/{method}"), []).append(method)
    return [f"| `{cell}` | {', '.join(methods)} | {columns} |" for columns, methods in rows.items()]


def grid_columns(name: str) -> str:
    """The columns of the grid, but for folder and method, of a recipe."""
    recipe, header = read_recipe(recipe_path(name)), recipe_path(name).read_text().split("\n\n")[0]
    devices = devices_of(name)
    script_args, args, *_ = arguments_on(devices, ["--config", name])
    prompts = 1000 if script_args.dataset_train_split == "train[:1000]" else known_prompts(script_args)
    geometry = batch_sizes_of(args, devices, prompts)
    columns = [
        re.search("Reproduces (Table 1|Figure 5|no table)", header)[1],
        f"{_generations(args, geometry, prompts):g}",
        re.search(r"Time: (?:estimated|about) (.*?)(?: hours)?[;.]", header)[1],
        str(devices),
        f"{geometry.per_device} x {geometry.accumulation}, {geometry.steps_per_generation}",
        recipe.get("vllm_mode", "none"),
        f"`{Path(launch_of(name).config_file or 'none').stem}`".replace("`none`", "none"),
    ]
    return " | ".join(columns)


def _generations(args, geometry, prompts: int | None) -> float:
    """Generations of a run; the prompts of an epoch need not be known if the steps are given."""
    if args.max_steps > 0:
        return args.max_steps / geometry.steps
    return prompts // geometry.prompts * args.num_train_epochs


def test_the_grid_is_what_the_files_say():
    cells = sorted({name.rpartition("/")[0] for name in recipe_names()})
    rows = [row for cell in cells for row in grid_rows(cell)]
    told = "\n".join(rows)
    print(f"The rows of the grid, to be pasted into recipes/README.md:\n\n{told}")
    assert told in README
    assert len(rows_under("recipe")) == len(rows)


def test_the_grid_knows_every_name():
    assert {name.rpartition("/")[2] for name in recipe_names()} == set(NAMES)


@pytest.mark.parametrize(("column", "dataset", "paper"), [(1, "math", 220), (2, "medqa", 420)])
def test_the_arithmetic_of_the_paper_s_experiment_is_that_of_its_recipes(column, dataset, paper):
    script_args, args, *_ = arguments_on(1, ["--config", f"qwen3-4b/{dataset}/tempo"])
    questions = known_prompts(script_args)
    run = batch_sizes_of(args, 1, questions)
    epochs, an_epoch = args.num_train_epochs, questions // run.prompts
    cells = [row[column] for row in rows_under("| MATH | MedQA")]
    assert cells[0].startswith(f"{questions:,}")
    assert rows_under("| MATH | MedQA")[1][1] == f"64 questions x 6 = {run.step_completions} completions"
    assert cells[2] == f"{run.steps:g} updates: {run.prompts} questions, {run.completions:,} completions"
    assert cells[3] == f"{an_epoch} generations, {an_epoch * run.steps:g} updates"
    assert cells[4] == f"{an_epoch * epochs:g}; {paper}"


def test_the_methods_of_a_folder_lie_alike_on_devices_but_for_ppo_whose_critic_takes_room():
    for name in recipe_names():
        if name == "qwen3-1.7b/math/two_gpus/ppo":
            continue
        first = next(other for other in recipe_names() if other.rpartition("/")[0] == name.rpartition("/")[0])
        assert (devices_of(name), launch_of(name).config_file) == (devices_of(first), launch_of(first).config_file)


def test_the_guide_names_what_is_there():
    guide = re.findall("`([^`]+)`", " ".join(row[1] for row in rows_under("at hand")))
    folders = {path.relative_to(recipes_folder()).as_posix() for path in recipes_folder().rglob("*")}
    shapes = {path.rpartition("/")[2] for path in folders}
    assert set(guide) <= folders | shapes


def test_eight_devices_learn_what_two_do():
    launch = launch_arguments(commands()[-1][2:])
    eight = arguments_on(launch.num_processes, launch.training_script_args).training
    two = arguments_on(2, ["--config", "qwen3-4b/math/two_gpus/tempo"]).training
    assert launch.num_processes == 8
    assert eight.generation_batch_size == two.generation_batch_size == 1920
    updates = [args.generation_batch_size * args.gradient_accumulation_steps for args in (eight, two)]
    assert updates == [384 * args.steps_per_generation for args in (eight, two)]
    differing = {key for key in vars(two) if getattr(two, key) != getattr(eight, key)}
    assert differing == {"gradient_accumulation_steps", "steps_per_generation", "distributed_state"}


def test_every_accelerate_configuration_has_its_row():
    assert [row[0].strip("`") for row in rows_under("configuration")] == list(ACCELERATE)
