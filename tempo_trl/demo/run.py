"""One run of the demo, `smollm2-135m/orders/METHOD.yaml` in a process of its own, and what it does now."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tempo_trl.methods import method_label
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_path

RECIPES = "smollm2-135m/orders"
SECONDS, QUICK_SECONDS = 220, 30  # of training; the rest of the six minutes loads, evaluates and draws
HELD_OUT, QUICK_HELD_OUT = 64, 16  # orders answered before and after, in one batch
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
PROGRESS = "progress.json"  # what the run's clock says of it
LEVELS, LONGEST_CURVE = " ▁▂▃▄▅▆▇█", 16  # with all else on a line of 80 columns


@dataclass
class Run:
    """
    A training run, ended by a clock, with held-out orders answered before and after.

    Args:
        method: A recipe in `smollm2-135m/orders`.
        folder: Its output folder. It has everything that TRL writes.
        quick: Whether it trains only a few steps.
    """

    method: str
    folder: Path
    quick: bool = False
    process: subprocess.Popen | None = field(default=None, init=False)

    @property
    def label(self) -> str:
        return method_label(self.method)

    @property
    def seconds(self) -> int:
        """Seconds of training."""
        return QUICK_SECONDS if self.quick else SECONDS

    @property
    def held_out(self) -> int:
        """How many held-out orders it answers before and after."""
        return QUICK_HELD_OUT if self.quick else HELD_OUT

    def command(self) -> list[str]:
        recipe = recipe_path(f"{RECIPES}/{self.method}")
        fields = {
            "output_dir": self.folder,
            "resume_from_checkpoint": "last",
            "max_steps": 1000,  # the clock ends the run
            "dataset_test_split": f"test[:{self.held_out}]",
            "do_eval": True,
            "eval_on_start": True,
            "num_generations_eval": 1,
            "per_device_eval_batch_size": self.held_out,
            "save_steps": SAVE_EVERY,
            "log_trees_steps": 1,
        }
        fields |= QUICK if self.quick else {}
        flags = [text for key, value in fields.items() for text in (f"--{key}", str(value))]
        module = "tempo_trl.launch.timed_training"
        return [sys.executable, "-m", module, str(self.seconds), "--config", str(recipe), *flags]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PROGRESS).unlink(missing_ok=True)  # an earlier attempt's
        own = KEEP_MEMORY | {"OMP_NUM_THREADS": str(os.cpu_count()), "TOKENIZERS_PARALLELISM": "false"}
        with (self.folder / "run.log").open("a") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, env=os.environ | own)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def finished(self) -> bool:
        """Whether it has evaluated the trained policy, which it does last."""
        return (self.folder / "eval_results.json").exists()

    def rewards(self) -> list[float]:
        """The mean reward of each step of a run that has ended."""
        return [entry["reward"] for entry in training_log(self.folder) if "reward" in entry]


class Watch:
    """What a run does now, as its clock writes it down."""

    def __init__(self, run: Run):
        self.run, self.phase, self.rewards = run, "before", []
        self.seconds, self.since = 0.0, time.monotonic()  # of training when the clock last wrote; when that was

    def look(self) -> bool:
        """Read what the clock wrote. Returns whether the run has done a step, or does something else than before."""
        before, path = (self.phase, len(self.rewards)), self.run.folder / PROGRESS
        if path.exists():
            self.phase, self.seconds, self.rewards = json.loads(path.read_text())
        changed = (self.phase, len(self.rewards)) != before
        self.since = time.monotonic() if changed else self.since
        return changed

    def spent(self) -> float:
        """Seconds of training so far."""
        here = time.monotonic() - self.since if self.phase == "training" else 0.0
        return self.run.seconds if self.phase == "after" else min(self.seconds + here, self.run.seconds)

    def state(self, curve: bool) -> str:
        """In words, with the curve of the rewards or with the last one only."""
        if self.phase != "training":
            return f"{'' if self.phase == 'after' else 'loading, and '}answering held-out orders"
        left = f"{self.run.seconds - self.spent():.0f} s left"
        if not self.rewards:
            return f"first step, {left}"
        last = f"{self.rewards[-1]:.2f}, {left}"
        if not curve:
            return f"step {len(self.rewards)}, reward {last}"
        levels = "".join(LEVELS[round(reward * (len(LEVELS) - 1))] for reward in self.rewards[-LONGEST_CURVE:])
        return f"reward {self.rewards[0]:.2f} {levels} {last}"
