"""The demo's task `sums`: train a tiny model on sums whose slips are known, with several methods and seeds.

A run is `sums/METHOD.yaml` in a process of its own, with one thread. By default the methods are TEMPO, the prefix
baseline (recommended by docs/evidence.md) and GRPO.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from tempo_trl.demo.results import MAX_STEPS, RECIPES, UPDATES_PER_GENERATION
from tempo_trl.demo.run import BASELINE, Run, demonstrate, methods_to_train

METHODS = "tempo", "prefix_baseline", BASELINE
GROW_TREES = ("treerpo", "treerpo_entropy")
QUICK_STEPS = 10  # 5 generations
PARALLEL = 2  # processes at a time, one core each
TREE_STEPS = 2  # factor on steps: a tree of 8 completions samples little more than half the tokens of 8 completions


@dataclass
class SumsRun(Run):
    """
    A run on sums.

    Args:
        seed: Its seed.
        max_steps: Its length, in optimizer steps.
    """

    seed: int = 0
    max_steps: int = MAX_STEPS

    recipes: ClassVar[str] = RECIPES
    settings: ClassVar[dict[str, str]] = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    @property
    def name(self) -> str:
        return f"{self.method} seed {self.seed}"

    def overrides(self) -> dict:
        # The tables of completions show how far a run is.
        return {"seed": self.seed, "max_steps": self.max_steps, "log_completions": True}

    def watch(self) -> "SumsWatch":
        return SumsWatch(self)

    def steps_done(self) -> int:
        """Optimizer steps so far: the number of the last table of completions, which TRL writes at each step."""
        files = self.folder.glob("completions/completions_*.parquet")
        return max((int(file.stem.split("_")[1]) for file in files), default=0)


class SumsWatch:
    """The generation of a run ([`~tempo_trl.demo.run.Watch`])."""

    def __init__(self, run: SumsRun):
        self.run, self.steps = run, run.steps_done()

    def look(self) -> bool:
        before = self.steps // UPDATES_PER_GENERATION
        self.steps = self.run.steps_done()
        return self.steps // UPDATES_PER_GENERATION != before

    def done(self) -> float:
        return self.steps / self.run.max_steps

    def state(self, curve: bool) -> str:
        done, total = (steps // UPDATES_PER_GENERATION for steps in (self.steps, self.run.max_steps))
        return f"generation {done} of {total}"


def main(output: str, quick: bool, methods: str | None, seeds: int) -> int:
    """
    Train the methods, and show the result.

    Args:
        output (`str`):
            Folder for the runs, the figures and the numbers.
        quick (`bool`):
            5 generations and one seed instead of 12 and `seeds`.
        methods (`str`, *optional*):
            Names of methods, separated by commas, or `"all"`.
        seeds (`int`):
            Number of seeds. Each method is trained once with each seed.

    Returns:
        `int`: exit status, from [`~tempo_trl.demo.run.demonstrate`].

    Raises:
        ValueError: `seeds` is below 1, or a method has no recipe.
    """
    if seeds < 1:
        raise ValueError(f"got --seeds {seeds}, expected at least 1. Raise it.")
    names, console = methods_to_train(methods, METHODS, RECIPES), Console()
    steps, seeds = (QUICK_STEPS, 1) if quick else (MAX_STEPS, seeds)
    folder = Path(output) / ("sums-quick" if quick else "sums")
    runs = [
        SumsRun(name, folder / f"{name}-seed{seed}", seed, steps * (TREE_STEPS if name in GROW_TREES else 1))
        for seed in range(seeds)
        for name in names
    ]

    def show() -> None:
        # imports torch, pandas and matplotlib, which are not needed while the runs are training
        from tempo_trl.demo import sums_show

        sums_show.show(runs, folder, console)

    return demonstrate(runs, folder, console, show, PARALLEL)
