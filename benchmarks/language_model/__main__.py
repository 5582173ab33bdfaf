"""Every method on a real language model, from a sweep of learning rates to controls. It resumes.

    python -m benchmarks.language_model sweep          # three rates or more, on two seeds that do not count
    python -m benchmarks.language_model final          # five seeds of every arm, each at its own rate
    python -m benchmarks.language_model controls       # dull causes of a lead, three seeds
    python -m benchmarks.language_model long --best tempo
    python -m benchmarks.language_model truth          # what perfect credit would be worth, by re-rollouts
    python -m benchmarks.language_model show           # the tables, from what has been measured

Two runs at a time take about seven minutes on two cores. The numbers of each are added to
docs/evidence/language_model.json when it ends, and a cell that stands there is not run again. `--minutes` ends the
study before a run would exceed it.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from benchmarks.compact_json import write_json
from benchmarks.estimators.evidence import commit
from benchmarks.language_model import arms
from benchmarks.language_model.arms import Cell
from benchmarks.language_model.cells import DIGITS, Cells
from benchmarks.language_model.figure import draw
from benchmarks.language_model.runs import numbers, train
from benchmarks.language_model.show import show, show_truth

STAGES = ("sweep", "final", "controls", "long", "truth", "show")
START, EACH_TOKEN = "start", 4  # the policy before training; prompts with a state after each token


def main(argv: list[str] | None = None) -> int:
    """Run a stage. Returns 0, 1 if a run failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--arms", help="comma-separated arms (default: all)")
    parser.add_argument("--best", default="tempo", help="arm of the long run beside GRPO (default: tempo)")
    parser.add_argument("--policy", default=START, help="folder of the policy of `truth` (default: the start's)")
    parser.add_argument("--prompts", type=int, default=24, help="instructions of `truth` (default: 24)")
    parser.add_argument("--steps", type=int, default=arms.STEPS, help="optimizer steps, fewer to see it run")
    parser.add_argument("--jobs", type=int, default=_jobs(), help="runs at a time (default: one for each core)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run that would end later")
    parser.add_argument("--output", type=Path, default=Path("runs/language_model"), help="folder of the runs")
    parser.add_argument(
        "--numbers", type=Path, default=Path("docs/evidence/language_model.json"), help="file of cells"
    )
    arguments = parser.parse_args(argv)
    console, cells = Console(width=None if sys.stdout.isatty() else 160), Cells(arguments.numbers)
    try:
        if arguments.stage == "truth":
            return true_values(arguments, console)
        if arguments.stage != "show":
            carry_out(arguments, cells, console)
    except RuntimeError as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped. Repeat the command to resume.")
        return 130
    show(cells, console)
    if arguments.stage == "show" and draw(cells, arguments.numbers.with_suffix(".png")):
        console.print(f"Figure: {arguments.numbers.with_suffix('.png')}", highlight=False)
    return 0


def true_values(arguments: argparse.Namespace, console: Console) -> int:
    """Measure a policy by re-rollouts, and add its numbers to the file beside the cells."""
    from benchmarks.language_model.truth import measure
    from tempo_trl.demo.language_model import language_model

    start = arguments.policy == START
    policy = language_model().path if start else arguments.policy
    name = START if start else Path(policy).name
    numbers = measure(policy, arguments.prompts, EACH_TOKEN, arguments.output / "truth" / name)
    path = arguments.numbers.with_stem(f"{arguments.numbers.stem}_truth")
    known = json.loads(path.read_text())["policies"] if path.exists() else {}
    command = f"python -m benchmarks.language_model truth --policy {name} --prompts {arguments.prompts}"
    numbers |= {"command": command, "provenance": _provenance() | commit()}
    write_json(path, {"policies": known | {name: numbers}}, DIGITS)
    show_truth(known | {name: numbers}, console)
    return 0


def planned(arguments: argparse.Namespace, cells: Cells) -> Iterator[Cell]:
    """The cells of a stage, of the arms asked for, in the order in which they run."""
    rates = cells.rates()
    stages = {
        "sweep": lambda: arms.sweep(cells.to_try, cells.best_two),
        "final": lambda: arms.final(rates),
        "controls": lambda: arms.controls(rates),
        "long": lambda: arms.long(rates, arguments.best),
    }
    wanted = arguments.arms.split(",") if arguments.arms else None
    for cell in stages[arguments.stage]():
        if wanted is None or cell.arm in wanted:
            short = arguments.steps if cell.steps == arms.STEPS else cell.steps
            yield Cell(cell.arm, cell.learning_rate, cell.seed, short)


def carry_out(arguments: argparse.Namespace, cells: Cells, console: Console) -> None:
    """Run the cells that are missing, as many at a time as asked for, each on its share of the cores."""
    threads = max(1, os.cpu_count() // arguments.jobs)
    begun, longest, left_out = time.monotonic(), 0.0, []

    def run(cell: Cell) -> None:
        nonlocal longest
        now = time.monotonic()
        if now - begun + longest > 60 * arguments.minutes:
            left_out.append(cell)
            return
        console.print(f"{time.strftime('%H:%M')} {cell.name}", highlight=False)
        folder = arguments.output / cell.name
        train(cell, folder, threads)
        cells.add(numbers(cell, folder), _provenance())
        longest = max(longest, time.monotonic() - now)

    # Planned again when all have run, because what the sweep has found chooses what it tries next.
    while not left_out and (missing := [cell for cell in planned(arguments, cells) if cell not in cells]):
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(run, missing))
    if left_out:
        console.print(f"{len(left_out)} of {len(missing)} runs are left out for want of time.")


def _jobs() -> int:
    """One run for each core, or one in all on a GPU."""
    import torch

    return 1 if torch.cuda.is_available() else os.cpu_count()


def _provenance() -> dict:
    import torch

    return {
        "command": "python -m benchmarks.language_model show",
        "weights": "SmolLM2-135M-Instruct in 4 bits (Q4_1), read into float32",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }


if __name__ == "__main__":
    sys.exit(main())
