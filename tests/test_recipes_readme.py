"""recipes/README.md says what the files say."""

import re
import shlex
from pathlib import Path

from tempo_trl.launch.arguments import launch_arguments
from tempo_trl.runs.recipes import recipe_names, recipes_folder

from .test_paper_recipes import run_of
from .test_recipes import arguments_on, devices_of, header_of, launch_of

README = (recipes_folder() / "README.md").read_text()


def rows_under(title: str) -> list[list[str]]:
    """Cells of the table that has `title` as its first heading."""
    table = README.partition(f"| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def grid_row(name: str) -> str:
    """The row of the grid for a recipe, but for its method: folder, whose settings, hours, devices, accelerate."""
    header = header_of(name)
    columns = [
        f"`{name.rpartition('/')[0]}`",
        re.search("Settings of (Table 1|no table)", header)[1],
        re.search(r"Time: (?:estimated|about) (.*?)(?: hours)?[;.]", header)[1],
        str(devices_of(name)),
        f"`{Path(launch_of(name).config_file or 'none').stem}`".replace("`none`", "none"),
    ]
    return " | ".join(columns)


def test_the_grid_is_what_the_files_say():
    rows = {}
    for name in recipe_names():
        rows.setdefault(grid_row(name), []).append(name.rpartition("/")[2])
    lines = [row.replace(" | ", f" | {', '.join(methods)} | ", 1) for row, methods in rows.items()]
    told = "\n".join(f"| {line} |" for line in lines)
    print(f"The rows of the grid, to be pasted into recipes/README.md:\n\n{told}")
    assert told in README
    assert len(rows_under("recipe")) == len(rows)


def test_the_arithmetic_of_the_paper_s_experiment_is_that_of_its_recipes():
    for column, dataset, paper in ((1, "math", 220), (2, "medqa", 420)):
        run = run_of(f"qwen3-1.7b/{dataset}/tempo")
        cells = [row[column] for row in rows_under("| MATH | MedQA")]
        completions, updates = run.args.generation_batch_size, run.args.generation_batch_size // run.update
        assert cells[0].startswith(f"{run.prompts:,}")
        assert cells[1] == f"64 questions x 6 = {run.update} completions"
        assert cells[2] == f"{updates} updates: {completions // 6} questions, {completions:,} completions"
        assert cells[3] == f"{run.generations // 10} generations, {run.updates // 10} updates"
        assert cells[4] == f"{run.generations}; {paper}"


def test_eight_devices_learn_what_two_do():
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    launch = launch_arguments(shlex.split(next(line for line in commands if "--num_processes 8" in line))[2:])
    eight = arguments_on(8, launch.training_script_args).training
    two = arguments_on(2, ["--config", "qwen3-4b/math/two_gpus/tempo"]).training
    differing = {key for key in vars(two) if getattr(two, key) != getattr(eight, key)}
    assert differing == {"gradient_accumulation_steps", "steps_per_generation", "distributed_state"}
    assert eight.generation_batch_size == two.generation_batch_size == 1920
    for args in (eight, two):
        assert args.generation_batch_size * args.gradient_accumulation_steps == 384 * args.steps_per_generation
