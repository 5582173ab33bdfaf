"""The demo's tasks with a tiny model, and the batch sizes of their runs, read from a recipe.

All methods of a task share its batch sizes (tests/test_recipes.py).
"""

from typing import NamedTuple

from tempo_trl.demo import rooms, task
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import read_recipe, recipe_names, recipe_path


def methods_with_recipes(folder: str) -> list[str]:
    """Recipes in a folder of the packaged ones, not in those below it, in the order of the table of methods."""
    named = (name.removeprefix(f"{folder}/") for name in recipe_names() if name.startswith(f"{folder}/"))
    found = sorted(name for name in named if "/" not in name)  # demo/rooms is another task than demo
    return [*(name for name in METHODS if name in found), *(name for name in found if name not in METHODS)]


class TinyTask(NamedTuple):
    """
    A task of `tempo-trl demo --task`.

    Args:
        recipes: Folder of its recipes.
        methods: What it compares by default.
        held_out: Problems of each evaluation.
    """

    recipes: str
    methods: tuple[str, ...]
    held_out: int

    @property
    def recipe(self) -> dict:
        """A recipe of the task, for the values that all methods share."""
        return read_recipe(recipe_path(f"{self.recipes}/tempo"))

    @property
    def rows(self) -> int:
        """Completions of a generation."""
        return self.recipe["per_device_train_batch_size"] * self.recipe["steps_per_generation"]


TINY_TASKS = {
    "sums": TinyTask("demo", ("tempo", "prefix_baseline", "grpo"), task.HELD_OUT),
    "rooms": TinyTask("demo/rooms", ("hgpo", "grpo"), rooms.HELD_OUT),
}
_RECIPE = TINY_TASKS["sums"].recipe

GROUP = _RECIPE["num_generations"]
MAX_LENGTH = _RECIPE["max_completion_length"]
MAX_STEPS = _RECIPE["max_steps"]
UPDATES_PER_GENERATION = _RECIPE["steps_per_generation"] // _RECIPE["gradient_accumulation_steps"]
ROWS = TINY_TASKS["sums"].rows
