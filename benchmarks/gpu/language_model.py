"""Span credit and its rivals on a real language model: orders written as JSON, with more steps than two cores allow.

The runs are those of `python -m benchmarks.language_model --task orders`, in float32, at the rates that its sweep
chose, with more steps. They run beside each other, so their times mean little. What each logged is added to
`gpu_orders.json`. Two short runs in bf16 come last.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from benchmarks.gpu.section import Row, main
from benchmarks.language_model.arms import BASELINE, Cell
from benchmarks.language_model.cells import Cells
from benchmarks.language_model.runs import command, numbers, train
from benchmarks.language_model.study import ORDERS
from benchmarks.learning.statistics import interval, iqm
from benchmarks.provenance import commit

ARMS = (BASELINE, "span_credit lambda 0.9")
SEEDS = ORDERS.seeds
STEPS = int(os.environ.get("STEPS_OF_ORDERS", 48))  # four times as many as on two cores
FOLDER = Path(os.environ.get("RUNS_OF_ORDERS", "runs/gpu/orders"))
NUMBERS = Path(os.environ.get("NUMBERS_OF_ORDERS", "gpu_orders.json"))
NO_CHECKPOINTS = ["--save_strategy", "no"]
HALF = [*NO_CHECKPOINTS, "--bf16", "true", "--max_steps", "8", "--do_eval", "false"]


def measured(cells: Cells, cell: Cell) -> dict:
    """The numbers of a run, which are added to the file."""
    if cell not in cells:
        train(ORDERS, cell, FOLDER / cell.name, 1, 0, *NO_CHECKPOINTS)
        where = {"machine": f"{torch.cuda.get_device_name()}, torch {torch.__version__}", **commit()}
        cells.add(numbers(ORDERS, cell, FOLDER / cell.name), where)
    return cells.of(cell)


def in_half(arm: str, rate: float) -> Row:
    """How a short run in bf16 ended."""
    folder = FOLDER / f"{arm}, bf16"
    folder.mkdir(parents=True, exist_ok=True)
    words = [*command(ORDERS, Cell(arm, rate, 0, ORDERS.steps), folder), *HALF]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    (folder / "run.log").write_text(done.stdout + done.stderr)
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return f"{arm}, bf16", f"FAILED: {last}" if done.returncode else "8 steps ran"


def comparison(found: dict[str, list[dict]]) -> list[Row]:
    """Each arm beside GRPO, seed by seed, over the steps that all runs have; in points."""
    count = min(len(row["reward"]) for own in found.values() for row in own)
    first = ORDERS.steps
    parts = {f"steps 1 to {first}": slice(first), f"steps {first + 1} to {count}": slice(first, count)}
    measures = {
        f"{name}, {part}": lambda row, key=key, steps=steps: 100 * mean(row[key][steps])
        for key, name in (("reward", "checks right"), ("all", "answers all right"))
        for part, steps in parts.items()
    }
    if all(row["held_out"] for own in found.values() for row in own):
        measures["checks right, held out"] = lambda row: 100 * row["held_out"]["mean"]
    return [
        (f"{arm}: {name}", beside([*map(of, own)], [*map(of, found[BASELINE])]))
        for name, of in measures.items()
        for arm, own in found.items()
        if arm != BASELINE
    ]


def beside(own: list[float], base: list[float]) -> str:
    """Interquartile means of an arm and of GRPO, and the lead with its interval and by seed."""
    leads = np.subtract(own, base)
    low, high = interval(leads)
    by_seed = ", ".join(f"{lead:+.1f}" for lead in leads)
    return f"{iqm(own):.1f}, GRPO {iqm(base):.1f}: {iqm(leads):+.1f} [{low:+.1f}, {high:+.1f}]; by seed {by_seed}"


def rows(device: torch.device, tiny: bool) -> list[Row]:
    if device.type == "cpu" or tiny:
        return [("orders", "not run: `python -m benchmarks.language_model --task orders` is the form for a CPU")]
    rates, cells = Cells(ORDERS).rates(), Cells(ORDERS, NUMBERS)
    with ThreadPoolExecutor(max(2, os.cpu_count() - 2)) as pool:
        halves = [pool.submit(in_half, arm, rates[arm]) for arm in ARMS[:2]]
        runs = {a: [pool.submit(measured, cells, Cell(a, rates[a], s, STEPS)) for s in SEEDS] for a in ARMS}
        found = {arm: [run.result() for run in own] for arm, own in runs.items()}
        short = [half.result() for half in halves]
    seconds = mean(second for own in found.values() for row in own for second in row["seconds"])
    each = f"{len(ARMS) * len(SEEDS)} runs of {STEPS} steps beside each other: seconds of a step"
    return [(each, f"{seconds:.1f}"), *comparison(found), *short]


if __name__ == "__main__":
    main(rows)
