"""The demo's task `orders`: train SmolLM2-135M-Instruct to write orders as JSON, and show what changed.

A run is `smollm2-135m/orders/METHOD.yaml` in a process of its own, ended by a clock, with held-out orders answered
before and after.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pyarrow as pa
from rich.console import Console

from tempo_trl.demo.language_model import language_model
from tempo_trl.demo.orders_show import MEASURE, held_out_orders, orders_of, right_fields, show
from tempo_trl.demo.run import BASELINE, Run, demonstrate, methods_to_train
from tempo_trl.methods import METHODS
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import STATE, training_log
from tempo_trl.runs.recipes import read_recipe, recipe_path

METHOD = "span_credit"
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
class OrdersRun(Run):
    """
    A run on orders.

    Args:
        quick: Whether it trains only a few steps.
    """

    quick: bool = False
    _read: dict[Path, int] = field(default_factory=dict, repr=False)  # times of the tables that were read

    recipes: ClassVar[str] = "smollm2-135m/orders"
    settings: ClassVar[dict[str, str]] = KEEP_MEMORY | {"OMP_NUM_THREADS": str(os.cpu_count())}

    @property
    def module(self) -> tuple[str, ...]:
        return "tempo_trl.launch.timed_training", str(self.seconds)

    @property
    def seconds(self) -> int:
        """Seconds of training."""
        return QUICK_SECONDS if self.quick else SECONDS

    @property
    def held_out(self) -> int:
        """How many held-out orders it answers before and after."""
        return QUICK_HELD_OUT if self.quick else HELD_OUT

    def overrides(self) -> dict:
        fields = {
            "max_steps": 1000,  # the clock ends the run
            "dataset_test_split": f"test[:{self.held_out}]",
            "do_eval": True,
            "eval_on_start": True,
            "num_generations_eval": 1,
            "per_device_eval_batch_size": self.held_out,
            "save_steps": SAVE_EVERY,
        }
        method = read_recipe(recipe_path(f"{self.recipes}/{self.method}"))["method"]
        if not METHODS[method].trainer.startswith("trl."):  # TRL's trainer records no trees
            fields["log_trees_steps"] = 1
        return fields | (QUICK if self.quick else {})

    def watch(self) -> "OrdersWatch":
        return OrdersWatch(self)

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
        The share of right fields at each step so far, read from TRL's tables of completions.

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
                    if held_out_orders().isdisjoint(orders_of(completions)):
                        shares[table] = right_fields(completions)
        for table in shares.keys() - set(tables):  # of a step that a resumed run trains again
            del shares[table]
        if shares != before:
            content = {table.name: shares[table] for table in sorted(shares)}
            write_atomically(self.folder / "shares.json", json.dumps(content, indent=2))
        return [shares[table] for table in sorted(shares)]


class OrdersWatch:
    """What a run does now, and its seconds of training ([`~tempo_trl.demo.run.Watch`])."""

    def __init__(self, run: OrdersRun):
        self.run, self.shares, self.phase = run, run.shares(), ""
        self.begun = 0.0
        # Files of an earlier attempt. Their times tell, because the clock of files runs behind Python's.
        self.old = {path: path.stat().st_mtime_ns for path in (*run.tables(), run.folder / STATE) if path.exists()}
        # A resumed run keeps the time that it had at its last checkpoint.
        self.earlier = sum(entry.get("step_time", 0.0) for entry in training_log(run.folder))

    def look(self) -> bool:
        before = self.phase, len(self.shares)
        self.shares = self.run.shares()
        if self._has_written(self.run.folder / STATE):
            self.phase = "after"
        elif self.phase != "training":
            self.phase = "training" if any(map(self._has_written, self.run.tables())) else "before"
            self.begun = time.monotonic()
        return (self.phase, len(self.shares)) != before

    def done(self) -> float:
        return self.spent() / self.run.seconds

    def spent(self) -> float:
        """Seconds of training so far, as far as the clock of the run counts them."""
        here = time.monotonic() - self.begun if self.phase == "training" else 0.0
        return self.run.seconds if self.phase == "after" else min(self.earlier + here, self.run.seconds)

    def state(self, curve: bool) -> str:
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


def main(output: str, quick: bool, methods: str | None, compare: bool) -> int:
    """
    Train, and show the result.

    Args:
        output (`str`):
            Folder for the runs and the report.
        quick (`bool`):
            A few steps only.
        methods (`str`, *optional*):
            Recipes in `smollm2-135m/orders`, separated by commas, or `"all"`. Defaults to span credit.
        compare (`bool`):
            Whether to train GRPO as well, for as many seconds.

    Returns:
        `int`: exit status, from [`~tempo_trl.demo.run.demonstrate`].

    Raises:
        ValueError: an unknown method, or there is no language model.
    """
    names = methods_to_train(methods, [METHOD], OrdersRun.recipes)
    names = list(dict.fromkeys([*names, *([BASELINE] if compare else [])]))
    try:
        source = language_model()
    except FileNotFoundError as error:
        hint = "Without a language model, `tempo-trl demo --task sums` trains a tiny one."
        raise ValueError(f"{error}\n{hint}") from error
    console, folder = Console(), Path(output) / ("orders-quick" if quick else "orders")
    console.print(f"Model: SmolLM2-135M-Instruct, from {source.origin}", highlight=False, soft_wrap=True)
    runs = [OrdersRun(name, folder / name, quick) for name in names]
    return demonstrate(runs, folder, console, lambda: show(runs, folder, console))
