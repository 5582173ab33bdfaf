"""Start, resume, watch and show the runs of a demo. A task of the demo says what it runs, and what it shows.

Each run is a process of its own. Repeat the command to resume interrupted runs from their last checkpoints. Finished
runs are not repeated.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tempo_trl.methods import METHODS, method_label
from tempo_trl.runs.recipes import recipe_names, recipe_path

BASELINE = "grpo"


class Watch(Protocol):
    """What a run does now, seen from the files that it writes."""

    def look(self) -> bool:
        """Look at the files. Returns whether the run has done a step, or does something else than before."""

    def done(self) -> float:
        """Share of the training that is done, 0 to 1."""

    def state(self, curve: bool) -> str:
        """In words, with the curve of a measure or with its last value only."""


@dataclass
class Run:
    """
    One training run of the demo. Its folder has everything that TRL writes.

    A task adds `overrides` and `watch`.

    Args:
        method: A recipe in the folder `recipes`.
        folder: Its output folder.
    """

    method: str
    folder: Path
    process: subprocess.Popen | None = field(default=None, init=False)

    recipes: ClassVar[str]
    settings: ClassVar[dict[str, str]] = {}  # of the environment of its process
    module: ClassVar[tuple[str, ...]] = ("tempo_trl.train",)  # what trains it, with arguments of its own

    @property
    def name(self) -> str:
        return self.method

    @property
    def label(self) -> str:
        return method_label(self.method)

    def overrides(self) -> dict:
        """Fields that differ from the recipe's."""
        raise NotImplementedError

    def watch(self) -> Watch:
        """What sees how far the run is. It is made before the run starts."""
        raise NotImplementedError

    def command(self) -> list[str]:
        fields = {"output_dir": self.folder, "resume_from_checkpoint": "last"} | self.overrides()
        flags = [text for key, value in fields.items() for text in (f"--{key}", str(value))]
        recipe = str(recipe_path(f"{self.recipes}/{self.method}"))
        return [sys.executable, "-m", *self.module, "--config", recipe, *flags]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"} | self.settings
        with (self.folder / "run.log").open("a") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, env=environment)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def finished(self) -> bool:
        """Whether it has evaluated the trained policy, which it does last."""
        return (self.folder / "eval_results.json").exists()


def methods_with_recipes(folder: str) -> list[str]:
    """Recipes in a folder of the packaged ones, not in those below it, in the order of the table of methods."""
    named = (name.removeprefix(f"{folder}/") for name in recipe_names() if name.startswith(f"{folder}/"))
    found = sorted(name for name in named if "/" not in name)
    return [*(name for name in METHODS if name in found), *(name for name in found if name not in METHODS)]


def methods_to_train(given: str | None, default: Sequence[str], recipes: str) -> list[str]:
    """
    The methods that `--methods` names, separated by commas; `"all"` are those with a recipe.

    Raises:
        ValueError: a method has no recipe in the folder `recipes`.
    """
    known = methods_with_recipes(recipes)
    if given is None:
        return list(default)
    names = known if given == "all" else list(dict.fromkeys(name.strip() for name in given.split(",")))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"got --methods {unknown[0]!r}, expected all, or some of {', '.join(known)}. Correct it.")
    return names


def demonstrate(runs: list[Run], folder: Path, console: Console, show: Callable[[], None], parallel: int = 1) -> int:
    """
    Train the runs that are not finished, show the result, and write the report of all of them.

    Args:
        runs (`list[Run]`):
            What to train.
        folder (`Path`):
            The folder of the runs; the report comes here, too.
        console (`Console`):
            Where progress and paths are printed.
        show (`Callable`):
            Prints what changed, once all runs are finished.
        parallel (`int`, *optional*, defaults to `1`):
            Runs at a time.

    Returns:
        `int`: exit status: 0, 130 after Ctrl-C, 1 if a run failed.
    """
    try:
        failed = train(runs, console, parallel)
    except KeyboardInterrupt:
        for run in runs:
            run.stop()
        console.print(f"\nStopped. The runs are in {folder}. Repeat the command to resume them.", soft_wrap=True)
        return 130
    if failed is not None:
        log = failed.folder / "run.log"
        console.print(f"A run failed ({failed.name}). Last lines of {log}:", style="bold", soft_wrap=True)
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), markup=False, highlight=False)
        return 1
    show()

    from tempo_trl.report.command import report  # imports matplotlib, which is not needed while the runs are training

    path = report([run.folder for run in runs], folder / "report.html")
    console.print(f"\nCredit per token: open {path} in a browser.", style="bold", highlight=False, soft_wrap=True)
    return 0


def train(runs: Sequence[Run], console: Console, parallel: int) -> Run | None:
    """
    Train the runs that are not finished, `parallel` at a time, and show how far they are: in a terminal with bars,
    elsewhere on a line per step. Returns a run that failed, or None.
    """
    waiting, active = [run for run in runs if not run.finished()], {}
    if finished := [run.name for run in runs if run not in waiting]:
        console.print(f"Finished before: {', '.join(finished)}. To train again, remove the folder of the run.")
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[state]}"))
    width = max((len(run.name) for run in waiting), default=0)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {run.name: progress.add_task(f"{run.name:{width}s}", total=1.0, state="") for run in waiting}
        while waiting or active:
            while waiting and len(active) < parallel:
                run = waiting.pop(0)
                active[run.name] = run, run.watch()
                run.start()
            time.sleep(0.3)
            for name, (run, watch) in list(active.items()):
                ended = run.process.poll() is not None  # asked first: what it wrote before it ended is looked at
                if watch.look() and not console.is_terminal:
                    console.print(f"{name}: {watch.state(curve=False)}", markup=False, highlight=False)
                progress.update(bars[name], completed=watch.done(), state=watch.state(curve=True))
                if ended:
                    del active[name]
                    if run.process.returncode or not run.finished():
                        for other, _ in active.values():
                            other.stop()
                        return run
    return None
