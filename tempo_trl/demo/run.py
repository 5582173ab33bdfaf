"""One run of the demo, `smollm2-135m/orders/METHOD.yaml` in a process of its own, and what it does now."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa

from tempo_trl.demo.answers import MEASURE, held_out_orders, orders_of, right_fields
from tempo_trl.methods import method_label
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import STATE, training_log
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
    _read: dict[Path, int] = field(default_factory=dict, init=False, repr=False)  # times of the tables that were read

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

    def tables(self) -> list[Path]:
        """TRL's tables of completions, that of step 0 (held-out answers of the untrained policy) first."""
        return sorted((self.folder / "completions").glob("completions_*.parquet"))

    def shares(self) -> list[float]:
        """
        The share of right fields at each step so far, read from TRL's tables of completions.

        They are kept in shares.json: an evaluation replaces the table of the step before it.
        """
        kept, tables = self.folder / "shares.json", {table.name: table for table in self.tables()}
        known = json.loads(kept.read_text()) if kept.exists() else {}
        # Without those of a step that a resumed run trains again.
        shares = {name: share for name, share in known.items() if name in tables}
        for name, table in tables.items():
            with suppress(pa.ArrowInvalid, OSError):  # the run is writing it, or has removed it
                changed = table.stat().st_mtime_ns
                if self._read.get(table) != changed:
                    completions = pd.read_parquet(table)
                    self._read[table] = changed
                    if held_out_orders().isdisjoint(orders_of(completions)):
                        shares[name] = right_fields(completions)
        if shares != known:
            write_atomically(kept, json.dumps(shares, indent=2))
        return [shares[name] for name in sorted(shares)]


class Watch:
    """What a run does now, seen from the files that it writes. It is made before the run starts."""

    def __init__(self, run: Run):
        self.run, self.shares, self.phase = run, run.shares(), ""
        self.begun = 0.0
        # Files of an earlier attempt. Their times tell, because the clock of files runs behind Python's.
        self.old = {path: path.stat().st_mtime_ns for path in (*run.tables(), run.folder / STATE) if path.exists()}
        # A resumed run keeps the time that it had at its last checkpoint.
        self.earlier = sum(entry.get("step_time", 0.0) for entry in training_log(run.folder))

    def look(self) -> bool:
        """Look at the files. Returns whether the run has done a step, or does something else than before."""
        before = self.phase, len(self.shares)
        trained = self._has_written(self.run.folder / STATE)  # asked first: the last step's table is there by now
        self.shares = self.run.shares()
        if trained:
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
        """In words, with the curve of the shares or with the last one only."""
        if self.phase != "training":
            return f"{'' if self.phase == 'after' else 'loading, and '}answering held-out orders"
        left = f"{self.run.seconds - self.spent():.0f} s left"
        if not self.shares:
            return f"first step, {left}"
        last = f"{self.shares[-1]:.2f}, {left}"
        if not curve:
            return f"step {len(self.shares)}, {MEASURE} {last}"
        levels = "".join(LEVELS[round(share * (len(LEVELS) - 1))] for share in self.shares[-LONGEST_CURVE:])
        return f"{MEASURE} {self.shares[0]:.2f} {levels} {last}"

    def _has_written(self, path: Path) -> bool:
        """Whether this file is from now, not from an earlier attempt."""
        return path.exists() and path.stat().st_mtime_ns != self.old.get(path)
