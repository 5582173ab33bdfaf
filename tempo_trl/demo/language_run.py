"""The demo on a language model: train SmolLM2-135M-Instruct on a task, and show what changed.

The run is `smollm2-135m/TASK/METHOD.yaml` in a process of its own, ended by a clock, with held-out prompts answered
before and after. Repeat the command to resume an interrupted run from its last checkpoint.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tempo_trl.demo.instructions import INSTRUCTIONS
from tempo_trl.demo.language_model import language_model
from tempo_trl.demo.language_show import show
from tempo_trl.demo.language_task import LanguageTask, prompts_of
from tempo_trl.demo.orders import ORDERS
from tempo_trl.demo.recipe import methods_with_recipes
from tempo_trl.methods import METHODS, method_label
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import STATE, training_log
from tempo_trl.runs.recipes import read_recipe, recipe_path

LANGUAGE_TASKS = {task.name: task for task in (ORDERS, INSTRUCTIONS)}
BASELINE = "grpo"
QUICK_SECONDS = 30  # of training
QUICK = {"gradient_accumulation_steps": 2}  # 4 prompts per step instead of 8
SAVE_EVERY = 4
# A CPU's log-probabilities allocate 100 MB in each operation, and glibc gives that back to the system each time: a
# quarter of a step went into fresh pages.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
LEVELS, LONGEST_CURVE = " ▁▂▃▄▅▆▇█", 16  # with all else on a line of 80 columns


@dataclass
class LanguageRun:
    """
    One training run of the demo. Its folder has everything that TRL writes.

    Args:
        task: The task.
        method: A recipe of the task.
        folder: Its output folder.
        quick: Whether it trains only a few steps.
    """

    task: LanguageTask
    method: str
    folder: Path
    quick: bool = False
    process: subprocess.Popen | None = None
    _read: dict[Path, int] = field(default_factory=dict, repr=False)  # times of the tables that were read

    @property
    def label(self) -> str:
        return method_label(self.method)

    @property
    def seconds(self) -> int:
        """Seconds of training."""
        return QUICK_SECONDS if self.quick else self.task.seconds

    @property
    def held_out(self) -> int:
        """How many held-out prompts it answers before and after."""
        return self.task.held_out_quick if self.quick else self.task.held_out

    def command(self) -> list[str]:
        recipe = recipe_path(f"{self.task.recipes}/{self.method}")
        overrides = {
            "output_dir": self.folder,
            "max_steps": 1000,  # the clock ends the run
            "dataset_test_split": f"test[:{self.held_out}]",
            "do_eval": True,
            "eval_on_start": True,
            "num_generations_eval": 1,
            "per_device_eval_batch_size": self.held_out,
            "save_steps": SAVE_EVERY,
            "resume_from_checkpoint": "last",
        }
        if not METHODS[read_recipe(recipe)["method"]].trainer.startswith("trl."):  # TRL's trainer records no trees
            overrides["log_trees_steps"] = 1
        overrides |= QUICK if self.quick else {}
        flags = [text for key, value in overrides.items() for text in (f"--{key}", str(value))]
        module = [sys.executable, "-m", "tempo_trl.launch.timed_training", str(self.seconds)]
        return [*module, "--config", str(recipe), *flags]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = KEEP_MEMORY | {"OMP_NUM_THREADS": str(os.cpu_count()), "TOKENIZERS_PARALLELISM": "false"}
        with (self.folder / "run.log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, env=os.environ | settings
            )

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def finished(self) -> bool:
        """Whether it has evaluated the trained policy, which it does last."""
        return (self.folder / "eval_results.json").exists()

    def tables(self) -> list[Path]:
        """TRL's tables of completions, that of step 0 (held-out answers of the untrained policy) first."""
        return sorted((self.folder / "completions").glob("completions_*.parquet"))

    @cached_property
    def _shares(self) -> dict[Path, float]:
        kept = self.folder / "shares.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        return {self.folder / "completions" / name: share for name, share in known.items()}

    def shares(self) -> list[float]:
        """
        The task's measure of each step so far, read from TRL's tables of completions.

        They are kept in shares.json: an evaluation replaces the table of the step before it.
        """
        tables, shares = self.tables(), self._shares
        before = dict(shares)
        for table in tables:
            with suppress(pa.ArrowInvalid, OSError):  # the run is writing it, or has removed it
                changed = table.stat().st_mtime_ns
                if self._read.get(table) != changed:
                    completions = pd.read_parquet(table)
                    self._read[table] = changed
                    if self._held_out_prompts.isdisjoint(prompts_of(completions)):
                        shares[table] = self.task.share(completions)
        for table in shares.keys() - set(tables):  # of a step that a resumed run trains again
            del shares[table]
        if shares != before:
            content = {table.name: shares[table] for table in sorted(shares)}
            write_atomically(self.folder / "shares.json", json.dumps(content, indent=2))
        return [shares[table] for table in sorted(shares)]

    @cached_property
    def _held_out_prompts(self) -> set[str]:
        return self.task.held_out_prompts()


def main(output: str, quick: bool, compare: bool, method: str | None, task: str = "orders") -> int:
    """
    Train, and show the result.

    Args:
        output (`str`):
            Folder for the runs and the report.
        quick (`bool`):
            A few steps only.
        compare (`bool`):
            Whether to train GRPO as well, for as many seconds.
        method (`str`, *optional*):
            Name of a recipe in `smollm2-135m/TASK`. Defaults to the task's.
        task (`str`, *optional*, defaults to `"orders"`):
            A key of [`LANGUAGE_TASKS`].

    Returns:
        `int`: exit status: 0, 130 after Ctrl-C, 1 if a run failed, 2 without a model or for an unknown method.
    """
    console, chosen = Console(), LANGUAGE_TASKS[task]
    methods = list(dict.fromkeys([method or chosen.method, *([BASELINE] if compare else [])]))
    known = methods_with_recipes(chosen.recipes)
    if unknown := [name for name in methods if name not in known]:
        message = f"got --methods {unknown[0]!r}, expected one of {', '.join(known)}. Correct the name."
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        return 2
    try:
        source = language_model()
    except (ValueError, FileNotFoundError) as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        console.print("Without a language model, `tempo-trl demo --task sums` trains a tiny one.", highlight=False)
        return 2
    console.print(f"Model: SmolLM2-135M-Instruct, from {source.origin}", highlight=False, soft_wrap=True)
    folder = Path(output) / (f"{task}-quick" if quick else task)
    runs = [LanguageRun(chosen, name, folder / name, quick) for name in methods]
    try:
        failed = next((run for run in runs if not _train(run, console)), None)
    except KeyboardInterrupt:
        for run in runs:
            run.stop()
        console.print(f"\nStopped. The runs are in {folder}. Repeat the command to resume them.", soft_wrap=True)
        return 130
    if failed is not None:
        log = failed.folder / "run.log"
        console.print(f"The run failed ({failed.method}). Last lines of {log}:", style="bold", soft_wrap=True)
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), markup=False, highlight=False)
        return 1
    show(chosen, runs, folder, console)
    return 0


def _train(run: LanguageRun, console: Console) -> bool:
    """
    Train a run that is not finished, and show its measure as it rises: in a terminal with a bar, elsewhere on a line
    per step. Returns whether it is finished then.
    """
    if run.finished():
        console.print(
            f"{run.method} is finished. To train again, remove {run.folder} or give another --output.", soft_wrap=True
        )
        return True
    watch = Watch(run)
    run.start()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(run.method, total=run.seconds, state=watch.state(curve=True))
        while run.process.poll() is None:
            news = watch.look()
            progress.update(bar, completed=watch.spent(), state=watch.state(curve=True))
            if news and not console.is_terminal:
                console.print(f"{run.method}: {watch.state(curve=False)}", markup=False, highlight=False)
            time.sleep(0.5)
    steps = len(run.shares())
    console.print(f"{run.method}: {steps} step{'s' if steps != 1 else ''}", highlight=False)
    return run.process.returncode == 0 and run.finished()


class Watch:
    """What a run does now, seen from the files that it writes, and its seconds of training."""

    def __init__(self, run: LanguageRun):
        self.run, self.shares, self.phase = run, run.shares(), ""
        self.begun = 0.0
        # Files of an earlier attempt. Their times tell, because the clock of files runs behind Python's.
        self.old = {path: path.stat().st_mtime_ns for path in (*run.tables(), run.folder / STATE) if path.exists()}
        # A resumed run keeps the time that it had at its last checkpoint.
        self.earlier = sum(entry.get("step_time", 0.0) for entry in training_log(run.folder))

    def look(self) -> bool:
        """Look at the run's files. Returns whether it does something else than before, or has done a step."""
        before = self.phase, len(self.shares)
        self.shares = self.run.shares()
        if self._has_written(self.run.folder / STATE):
            self.phase = "after"
        elif self.phase != "training":
            self.phase = "training" if any(map(self._has_written, self.run.tables())) else "before"
            self.begun = time.monotonic()
        return (self.phase, len(self.shares)) != before

    def spent(self) -> float:
        """Seconds of training so far, as far as the clock of the run counts them."""
        here = time.monotonic() - self.begun if self.phase == "training" else 0.0
        return self.run.seconds if self.phase == "after" else min(self.earlier + here, self.run.seconds)

    def state(self, curve: bool) -> str:
        """In words, with the curve of the measure or with its last value only."""
        if self.phase != "training":
            return f"{'' if self.phase == 'after' else 'loading, and '}answering held-out {self.run.task.name}"
        left = f"{self.run.seconds - self.spent():.0f} s left"
        if not self.shares:
            return f"first step, {left}"
        measure, last = self.run.task.measure, f"{self.shares[-1]:.2f}, {left}"
        if not curve:
            return f"step {len(self.shares)}, {measure} {last}"
        levels = "".join(LEVELS[round(share * (len(LEVELS) - 1))] for share in self.shares[-LONGEST_CURVE:])
        return f"{measure} {self.shares[0]:.2f} {levels} {last}"

    def _has_written(self, path: Path) -> bool:
        """Whether this file is from now, not from an earlier attempt."""
        return path.exists() and path.stat().st_mtime_ns != self.old.get(path)
