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

import torch

from benchmarks.estimators.evidence import commit
from benchmarks.gpu.section import Row, main
from benchmarks.language_model.arms import BASELINE, Cell
from benchmarks.language_model.cells import Cells
from benchmarks.language_model.runs import command, numbers, train
from benchmarks.language_model.study import ORDERS

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


def ahead(arm: str, found: dict[str, list[dict]]) -> Row:
    """An arm beside GRPO, seed by seed: over the run, in its last ten steps, and on held-out orders."""
    parts = {
        "over the run": lambda row: mean(row["reward"]),
        "in the last ten steps": lambda row: mean(row["reward"][-10:]),
        "held out": lambda row: row["held_out"]["mean"],
    }
    said = []
    for name, of in parts.items():
        own = [100 * of(row) for row in found[arm]]
        leads = [a - 100 * of(b) for a, b in zip(own, found[BASELINE], strict=True)]
        beside = "" if arm == BASELINE else f" ({', '.join(f'{lead:+.1f}' for lead in leads)})"
        said.append(f"{name} {mean(own):.1f}{beside}")
    return f"{arm}: criteria right in % (difference to GRPO by seed)", "; ".join(said)


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
    return [(each, f"{seconds:.1f}"), *(ahead(arm, found) for arm in ARMS), *short]


if __name__ == "__main__":
    main(rows)
