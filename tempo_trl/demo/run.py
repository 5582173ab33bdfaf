"""The demo on tiny models: train methods from the same starting policy, and compare them.

Of sums, where every slip is known, the methods are TEMPO, the prefix baseline (recommended by docs/guides/choosing.md)
and GRPO. Of rooms, where an agent calls tools, they are HGPO and GRPO.

Each run is the command `python -m tempo_trl.train --config recipes/demo/METHOD.yaml --seed S`, in its own process with
one thread, two at a time. Repeat the command to resume interrupted runs from their last checkpoints. Finished runs are
not repeated.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tempo_trl.demo.recipe import MAX_STEPS, TINY_TASKS, UPDATES_PER_GENERATION, methods_with_recipes
from tempo_trl.runs.recipes import recipe_path

GROW_TREES = ("treerpo", "treerpo_entropy")
QUICK_STEPS = 10  # 5 generations
PARALLEL = 2  # processes at a time, one core each
TREE_STEPS = 2  # factor on steps: a tree of 8 completions samples little more than half the tokens of 8 completions


@dataclass
class Run:
    """One training run of the demo. Its folder has everything that TRL writes."""

    method: str
    seed: int
    folder: Path
    max_steps: int
    recipes: str = "demo"
    process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        overrides = {"seed": self.seed, "output_dir": self.folder, "max_steps": self.max_steps}
        overrides["log_completions"] = True  # which shows how far a run is
        flags = [text for key, value in overrides.items() for text in (f"--{key}", str(value))]
        recipe = str(recipe_path(f"{self.recipes}/{self.method}"))
        module = [sys.executable, "-m", "tempo_trl.train"]
        return [*module, "--config", recipe, *flags, "--resume_from_checkpoint", "last"]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        with (self.folder / "run.log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, env=os.environ | threads
            )

    def steps_done(self) -> int:
        """Optimizer steps so far: the number of tables of completions, which TRL writes at each step."""
        steps = [int(file.stem.split("_")[1]) for file in self.folder.glob("completions/completions_*.parquet")]
        return max(steps, default=0)

    def finished(self) -> bool:
        state = self.folder / "trainer_state.json"
        return state.exists() and json.loads(state.read_text())["global_step"] >= self.max_steps


def main(output: str, quick: bool, seeds: int, methods: str | None = None, task: str = "sums") -> int:
    """
    Train the methods, compare them and print the results.

    Args:
        output (`str`):
            Folder for the runs, the figures and the numbers.
        quick (`bool`):
            5 generations and one seed instead of 12 and `seeds`.
        seeds (`int`):
            Number of seeds. Each method is trained once with each seed.
        methods (`str`, *optional*):
            Comma-separated names of methods, or `"all"`. Prints one table of them at an equal number of sampled tokens
            instead of the default comparison with credit.
        task (`str`, *optional*, defaults to `"sums"`):
            A key of [`~tempo_trl.demo.recipe.TINY_TASKS`].

    Returns:
        `int`: exit status: 0, 130 after Ctrl-C, 1 if a run failed, 2 for `seeds` below 1 or an unknown method.
    """
    console = Console()
    if seeds < 1:
        console.print(f"got --seeds {seeds}, expected at least 1. Raise it.")
        return 2
    tiny, known = TINY_TASKS[task], demo_methods(task)
    names = _method_names(methods, tiny.methods, known)
    unknown = [name for name in names if name not in known]
    if unknown:
        expected = f"all, or some of {', '.join(known)}"
        console.print(
            f"got --methods {unknown[0]!r}, expected {expected}. Correct the name.", highlight=False, soft_wrap=True
        )
        return 2
    steps, seeds = (QUICK_STEPS, 1) if quick else (MAX_STEPS, seeds)
    folder = Path(output) / (f"{task}-quick" if quick else task)
    length = steps, methods is not None
    runs = [_run(name, seed, folder, *length, tiny.recipes) for seed in range(seeds) for name in names]
    try:
        failed = _train(runs, console)
    except KeyboardInterrupt:
        _stop(runs)
        console.print(f"\nStopped. The runs are in {folder}. Repeat the command to resume them.", soft_wrap=True)
        return 130
    if failed is not None:
        log = failed.folder / "run.log"
        console.print(
            f"A run failed ({failed.method}, seed {failed.seed}). Last lines of {log}:", style="bold", soft_wrap=True
        )
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), markup=False, highlight=False)
        return 1

    # imports torch, pandas and matplotlib, which are not needed while the runs are training
    if methods is None and task == "sums":
        from tempo_trl.demo.show import show

        show(runs, folder, console)
    else:
        from tempo_trl.demo.methods import show_methods

        show_methods(runs, folder, console, tiny)
    _report(runs, folder, console)
    return 0


def _report(runs: list[Run], folder: Path, console: Console) -> None:
    """Write the report of all runs, including those without recorded trees."""
    from tempo_trl.report.command import report

    path = report([run.folder for run in runs], folder / "report.html")
    console.print(f"\nCredit per token: open {path} in a browser.", style="bold", highlight=False, soft_wrap=True)


def demo_methods(task: str = "sums") -> list[str]:
    """Methods with a recipe for a task of the demo, in the order of the table of methods."""
    return methods_with_recipes(TINY_TASKS[task].recipes)


def _method_names(methods: str | None, default: tuple[str, ...], known: list[str]) -> list[str]:
    if methods is None:
        return list(default)
    return known if methods == "all" else [name.strip() for name in methods.split(",")]


def _run(method: str, seed: int, folder: Path, steps: int, equal_tokens: bool, recipes: str) -> Run:
    longer = TREE_STEPS if equal_tokens and method in GROW_TREES else 1
    return Run(method, seed, folder / f"{method}-seed{seed}", longer * steps, recipes)


def _train(runs: list[Run], console: Console) -> Run | None:
    """Start the unfinished runs, `PARALLEL` at a time, and show their progress. Returns a failed run, or None."""
    waiting, active = [run for run in runs if not run.finished()], []
    if waiting:
        console.print(
            f"Training {len(waiting)} runs, {PARALLEL} at a time, one core each. Stop with Ctrl-C and resume any time."
        )
    else:
        console.print("All runs are finished. To train again, remove their folder or give another --output.")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars = {
            id(run): progress.add_task(f"{run.method:15s} seed {run.seed}", total=run.max_steps, start=False, state="")
            for run in waiting
        }
        while waiting or active:
            while waiting and len(active) < PARALLEL:
                run = waiting.pop(0)
                run.start()
                progress.start_task(bars[id(run)])
                active.append(run)
            time.sleep(0.3)
            for run in active:
                done, total = (steps // UPDATES_PER_GENERATION for steps in (run.steps_done(), run.max_steps))
                progress.update(bars[id(run)], completed=done, total=total, state=f"generation {done} of {total}")
            for run in [run for run in active if run.process.poll() is not None]:
                active.remove(run)
                progress.stop_task(bars[id(run)])
                if run.process.returncode or not run.finished():
                    _stop(active)
                    return run
    return None


def _stop(runs: list[Run]) -> None:
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.terminate()
    for run in runs:
        if run.process is not None:
            run.process.wait()
