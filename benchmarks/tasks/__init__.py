"""The tasks of our studies, drawn from a seed without a download: a recipe names `benchmarks.tasks.NAME.load`.

`calls`, `word_sums`, `instructions`, `products` and the agent's `directory` are for SmolLM2-135M-Instruct, like the
package's `orders`; `rooms` is a world for a tiny agent. Their recipes are in `benchmarks/recipes`.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.runs.recipes import recipe_path, recipe_text

if TYPE_CHECKING:
    from datasets import Dataset

RECIPES = Path(__file__).parents[1] / "recipes"


def recipe_of(task: str, method: str) -> Path:
    """The recipe of a task: in `benchmarks/recipes`, or, of `orders`, among the package's."""
    own = RECIPES / task / f"{method}.yaml"
    return own if own.is_file() else recipe_path(f"smollm2-135m/{task}/{method}")


def fields_of(recipe: Path) -> dict:
    """The fields of a recipe, with numbers as YAML reads them."""
    return yaml.safe_load(recipe_text(recipe))


def prompts_of(task: str, split: str) -> "Dataset":
    """The prompts of a task, which is one of ours or of the package's."""
    if task in BENCHMARKS:
        return load_prompts(task, split)
    return import_module(f"benchmarks.tasks.{task}").load(split)


def prompts(
    rows: list[dict], question: str, system_prompt: str = "", example: tuple[str, str] | None = None
) -> "Dataset":
    """Rows as a dataset for TRL: a `prompt` that asks what is in the column `question`, and the other columns."""
    from datasets import Dataset

    before = [{"role": "system", "content": system_prompt}] if system_prompt else []
    if example:
        before += [{"role": role, "content": text} for role, text in zip(("user", "assistant"), example, strict=True)]
    asked = [{"prompt": [*before, {"role": "user", "content": row[question]}]} for row in rows]
    return Dataset.from_list([prompt | row for prompt, row in zip(asked, rows, strict=True)])


def answered(rows: "Dataset", column: str) -> "Dataset":
    """Prompts and their right answers, which are in a column, as TRL's SFTTrainer reads them."""
    return rows.map(
        lambda row: {"completion": [{"role": "assistant", "content": row[column]}]},
        remove_columns=[name for name in rows.column_names if name != "prompt"],
    )
