"""One training run of a study: its settings, its recipe, and its files.

A run is `tempo_trl.train` on `recipes/sums/grpo.yaml` with the method, and the study's task, start and learning rate.
It ends when it has generated its budget of tokens, not after a number of updates.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from benchmarks.learning.starts import Start
from benchmarks.tasks import fields_of
from tempo_trl.runs.recipes import recipe_path

ROWS = 256  # completions of a generation, or as near to it as whole groups come
UPDATES = 2  # of a generation
SAVE_EVERY = 10  # generations
WHERE = ("output_dir", "dataset_name", "model_name_or_path")  # what a moved output folder changes
DONE = "finished.json"
# Of a method, where its defaults are not those of this task. The sampling is the same for all.
FIELDS = {
    "hepo": {"top_entropy_quantile": 0.2},
    "ppo": {"critic_learning_rate": 1e-3, "beta": 1e-4},
    "treerpo_entropy": {"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0},
}


@dataclass(frozen=True)
class Budget:
    """Tokens that a run generates, as `generations` of `ROWS` full completions, and its evaluations on the way."""

    generations: int = 8
    evaluations: int = 8


@dataclass(frozen=True)
class Run:
    """
    Args:
        start (`Start`): Task, starting policy and prompts.
        method (`str`): A method of `tempo_trl.launch.train`.
        learning_rate (`float`): Of the policy.
        seed (`int`): Orders the prompts and drives the sampling.
        output (`Path`): Folder of all runs.
        changes (`tuple` of pairs): Fields that differ from the recipe.
        budget (`Budget`): How long.
    """

    start: Start
    method: str
    learning_rate: float
    seed: int
    output: Path
    changes: tuple[tuple[str, object], ...] = ()
    budget: Budget = Budget()

    full_rows = ROWS  # of another benchmark its own number
    safety = 8  # no method needs as many times the generations that the budget lasts for at full length

    @property
    def name(self) -> str:
        changed = (f"{key}={value}" for key, value in self.changes)
        length = f"g{self.budget.generations}"
        return ",".join([self.method, *changed, length, f"lr={self.learning_rate:g}", f"seed={self.seed}"])

    @property
    def folder(self) -> Path:
        return self.output / "runs" / self.start.folder.name / self.name

    @property
    def group(self) -> int:
        return dict(self.changes).get("num_generations", 8)

    @property
    def rows(self) -> int:
        """Completions of a generation: whole groups, the same number in each of its two updates."""
        whole_groups = self.group * (self.full_rows // UPDATES // self.group)
        return UPDATES * dict(self.changes).get("per_device_train_batch_size", whole_groups)

    @property
    def tokens(self) -> int:
        """The budget, in generated tokens."""
        return self.budget.generations * self.full_rows * self.start.task.tokens

    @property
    def base(self) -> dict:
        """The recipe that this run starts from: GRPO's with the method and its fields."""
        return fields_of(recipe_path("sums/grpo")) | {"method": self.method} | FIELDS.get(self.method, {})

    @cached_property
    def recipe(self) -> dict:
        """The whole recipe: the method's, with this study's task, sizes and changes."""
        recipe = {key: value for key, value in self.base.items() if key != "task"}
        steps = self.safety * UPDATES * self.budget.generations * self.full_rows // self.rows
        ours = {
            "dataset_name": str(self.start.prompts),
            "model_name_or_path": str(self.start.folder),
            "reward_funcs": [self.start.task.reward_func],
            "max_completion_length": self.start.max_completion_length,
            "per_device_train_batch_size": self.rows // UPDATES,
            "per_device_eval_batch_size": self.start.held_out,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": "constant",  # a run ends by its tokens, not at a step that a schedule could know
            "max_steps": steps,
            "eval_steps": steps,  # the budget's clock says when to evaluate
            "save_steps": UPDATES * SAVE_EVERY,
            "save_total_limit": 1,
            "log_completions": False,
            "seed": self.seed,
            "output_dir": str(self.folder),
        }
        return recipe | ours | dict(self.changes) | tree_sizes(self)

    def prepare(self) -> Path:
        """Write the recipe, and return its file.

        Raises:
            ValueError: the folder holds a run with another recipe of the same name.
        """
        path = self.folder / "recipe.yaml"
        if path.exists() and _settings(yaml.safe_load(path.read_text())) != _settings(self.recipe):
            raise ValueError(
                f"{self.folder} has a run of another recipe. Remove the folder, or give another --output."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(self.recipe, sort_keys=False))
        budget = {"tokens": self.tokens, "evaluations": self.budget.evaluations, "rows": self.rows}
        (self.folder / "budget.json").write_text(json.dumps(budget | {"group": self.group}))
        return path

    def is_finished(self) -> bool:
        """Whether it has spent its budget, by the file that is written after everything else."""
        return (self.folder / DONE).exists()


def tree_sizes(run: Run) -> dict:
    """Sizes of grown trees, from the length of the task's completions: as the task needs them.

    A fixed tree's segments are equal parts of a completion. An entropy tree splits after the task's delimiters, and
    grows a sibling beside a last segment longer than 5/8 of a completion.
    """
    changes, tokens = dict(run.changes), run.start.task.tokens
    if run.method == "treerpo_entropy" or changes.get("rollout") == "entropy":
        delimiters, coverage = list(run.start.task.delimiters), max(4, 5 * tokens // 8)
        sizes = {"tree_min_segment_tokens": 4, "tree_entropy_threshold": 0.3, "tree_max_depth": 7}
        return sizes | {"tree_delimiters": delimiters, "tree_coverage_tokens": coverage}
    if run.method == "treerpo" or changes.get("rollout") == "fixed":
        depth = changes.get("tree_depth", 3)
        sizes = {"tree_children": 2, "tree_depth": depth, "tree_step_tokens": -(-tokens // depth)}
        return sizes | {key: changes[key] for key in sizes if key in changes}
    return {}


def _settings(recipe: dict) -> dict:
    return {key: value for key, value in recipe.items() if key not in WHERE}
