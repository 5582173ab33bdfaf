"""The batch sizes of the demo's runs, read from a recipe. All methods share them (tests/test_recipes.py)."""

from tempo_trl.runs.recipes import read_recipe, recipe_path

_RECIPE = read_recipe(recipe_path("demo/tempo"))

GROUP = _RECIPE["num_generations"]
MAX_LENGTH = _RECIPE["max_completion_length"]
MAX_STEPS = _RECIPE["max_steps"]
UPDATES_PER_GENERATION = _RECIPE["steps_per_generation"] // _RECIPE["gradient_accumulation_steps"]
ROWS = _RECIPE["per_device_train_batch_size"] * _RECIPE["steps_per_generation"]  # completions of a generation
