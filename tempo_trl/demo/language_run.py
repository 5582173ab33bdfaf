"""The demo on a language model: train SmolLM2-135M-Instruct to follow instructions, and show what changed.

The run is `smollm2-135m/instructions/METHOD.yaml` in a process of its own, ended by a clock, with the held-out
instructions answered before and after. Repeat the command to resume an interrupted run from its last checkpoint.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tempo_trl.demo.language_model import language_model
from tempo_trl.demo.language_show import HELD_OUT, show
from tempo_trl.methods import METHODS
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_path

METHOD, BASELINE = "tempo", "grpo"
OF_TRL = ("grpo", "hepo")  # whose trainer is TRL's and records no trees
SECONDS, QUICK_SECONDS = 200, 30  # of training; the rest of the six minutes loads, evaluates and draws
SAVE_EVERY = 4
LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass
class LanguageRun:
    """One training run of the demo. Its folder has everything that TRL writes."""

    method: str
    folder: Path
    seconds: int
    process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        recipe = recipe_path(f"smollm2-135m/instructions/{self.method}")
        overrides = {
            "output_dir": self.folder,
            "max_steps": 1000,  # the clock ends the run
            "dataset_test_split": f"test[:{HELD_OUT}]",
            "do_eval": True,
            "eval_on_start": True,
            "num_generations_eval": 1,
            "per_device_eval_batch_size": HELD_OUT,
            "save_steps": SAVE_EVERY,
            "resume_from_checkpoint": "last",
        }
        if self.method not in OF_TRL:
            overrides["log_trees_steps"] = 1
        flags = [text for key, value in overrides.items() for text in (f"--{key}", str(value))]
        module = [sys.executable, "-m", "tempo_trl.launch.timed_training", str(self.seconds)]
        return [*module, "--config", str(recipe), *flags]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        threads = {"OMP_NUM_THREADS": str(os.cpu_count()), "TOKENIZERS_PARALLELISM": "false"}
        with (self.folder / "run.log").open("a") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, env=os.environ | threads
            )

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def finished(self) -> bool:
        """Whether it has evaluated the trained policy, which it does last."""
        return (self.folder / "eval_results.json").exists()

    def rewards(self) -> list[float]:
        """Mean reward of each step so far: TRL's log once it is finished, before that its tables of completions."""
        if self.finished():
            return [entry["reward"] for entry in training_log(self.folder) if "reward" in entry]
        files = sorted((self.folder / "completions").glob("completions_*.parquet"))  # that of step 0 is held out
        tables = (pd.read_parquet(file, columns=["instruction_reward"]) for file in files[1:])
        return [float(table["instruction_reward"].mean()) for table in tables]


def main(output: str, quick: bool, compare: bool, method: str | None) -> int:
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
            Method of a recipe in `smollm2-135m/instructions`. Defaults to [`METHOD`].

    Returns:
        `int`: exit status: 0, 130 after Ctrl-C, 1 if a run failed, 2 without a model or for an unknown method.
    """
    console = Console()
    methods = list(dict.fromkeys([method or METHOD, *([BASELINE] if compare else [])]))
    try:
        for name in methods:
            if name not in METHODS:
                raise ValueError(f"got the method {name!r}, expected one of {', '.join(METHODS)}. Correct the name.")
            recipe_path(f"smollm2-135m/instructions/{name}")
        source = language_model()
    except (ValueError, FileNotFoundError) as error:
        console.print(str(error), markup=False, highlight=False)
        console.print("Without a language model, `tempo-trl demo --task sums` trains a tiny one.", highlight=False)
        return 2
    console.print(f"Model: SmolLM2-135M-Instruct, from {source.origin}", highlight=False)
    folder = Path(output) / ("instructions-quick" if quick else "instructions")
    seconds = QUICK_SECONDS if quick else SECONDS
    runs = [LanguageRun(name, folder / name, seconds) for name in methods]
    try:
        failed = next((run for run in runs if not _train(run, console)), None)
    except KeyboardInterrupt:
        for run in runs:
            run.stop()
        console.print(f"\nStopped. The runs are in {folder}. Repeat the command to resume them.")
        return 130
    if failed is not None:
        log = failed.folder / "run.log"
        console.print(f"The run failed ({failed.method}). Last lines of {log}:", style="bold")
        console.print("\n".join(log.read_text().splitlines()[-20:]), markup=False, highlight=False)
        return 1
    show(runs, folder, console)
    return 0


def _train(run: LanguageRun, console: Console) -> bool:
    """Train a run that is not finished, showing its reward as it rises. Returns whether it is finished then."""
    if run.finished():
        console.print(f"{run.method} is finished. To train again, remove {run.folder} or give another --output.")
        return True
    run.start()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(run.method, total=run.seconds, state="loading, and answering held-out instructions")
        begun, seen = None, 0
        while run.process.poll() is None:
            time.sleep(0.5)
            rewards = run.rewards()
            if begun is None and (run.folder / "completions" / "completions_00000.parquet").exists():
                begun = time.monotonic()
            if begun is not None:
                spent = min(time.monotonic() - begun, run.seconds)
                progress.update(bar, completed=spent, state=_state(rewards, run.seconds - spent))
            seen = len(rewards)
    console.print(f"{run.method}: {seen} steps", highlight=False)
    return run.process.returncode == 0 and run.finished()


def _state(rewards: list[float], left: float) -> str:
    if not rewards:
        return f"first step, {left:.0f} s left"
    curve = "".join(LEVELS[round(reward * (len(LEVELS) - 1))] for reward in rewards[-30:])
    return f"reward {rewards[0]:.2f} {curve} {rewards[-1]:.2f}, {left:.0f} s left"
