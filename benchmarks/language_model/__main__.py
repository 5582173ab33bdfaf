"""Every method on a real language model, from a sweep of learning rates to tables. It resumes.

    python -m benchmarks.language_model sweep          # three rates or more, on two seeds that do not count
    python -m benchmarks.language_model final          # five seeds of every arm, each at its own rate
    python -m benchmarks.language_model noise --task orders    # how much of a gradient is signal, by credit
    python -m benchmarks.language_model show           # the tables, from what has been measured

`--task orders`, `calls` and `word_sums` are other studies: of tasks whose answers are judged by several criteria, with
span credit among the arms. `tuned_orders`, `products` and `directory` start from a policy that was fine-tuned on a few
right answers (`benchmarks/language_model/starts.py`), `tuned_orders_4_epochs` and the like from one that saw them more
often, and `products_60_steps` and the like run longer. All of these but those of `directory`, where tools answer, have
the stage `noise`.

Two runs of `instructions` at a time take about seven minutes on two cores. The numbers of each are added to a file in
docs/evidence when it ends, and a cell that stands there is not run again. A run that was interrupted resumes.
`--minutes` ends the study before a run would exceed it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.compact_json import write_json
from benchmarks.language_model.arms import Cell
from benchmarks.language_model.cells import DIGITS, Cells
from benchmarks.language_model.figure import draw
from benchmarks.language_model.runs import numbers, train
from benchmarks.language_model.show import show
from benchmarks.language_model.study import DIRECTORY, INSTRUCTIONS, STUDIES, Study
from benchmarks.provenance import commit, machine

STAGES = ("sweep", "final", "noise", "show")
START = "start"  # the policy before training


def main(argv: list[str] | None = None) -> int:
    """Run a stage. Returns 0, 1 if a run failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--task", choices=STUDIES, default=INSTRUCTIONS.task, help="the study (default: instructions)")
    parser.add_argument("--arms", help="arms with commas in between (default: all)")
    parser.add_argument("--policy", default=START, help="folder of the policy of `noise` (default: the start's)")
    parser.add_argument("--prompts", type=int, default=24, help="prompts of `noise` (default: 24)")
    parser.add_argument("--steps", type=int, help="optimizer steps, fewer to see it run (default: the study's)")
    parser.add_argument("--jobs", type=int, default=_jobs(), help="runs at a time (default: one for each core)")
    parser.add_argument("--nice", type=int, default=10, help="of the runs, so that other work goes on (default: 10)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run that would end later")
    parser.add_argument("--output", type=Path, help="folder of the runs (default: runs/language_model[/TASK])")
    parser.add_argument("--numbers", type=Path, help="file of cells (default: docs/evidence/[TASK].json)")
    arguments = parser.parse_args(argv)
    study = STUDIES[arguments.task]
    if arguments.stage == "noise" and (not study.has_criteria or study.task == DIRECTORY.task):
        parser.error(f"noise is measured on tasks with several criteria and without tools, got {study.name}")
    arguments.numbers = arguments.numbers or study.numbers
    arguments.output = arguments.output or Path("runs/language_model", *([study.name] if study.has_criteria else []))
    console, cells = Console(width=None if sys.stdout.isatty() else 200), Cells(study, arguments.numbers)
    try:
        if arguments.stage == "noise":
            return measure_noise(arguments, study, console)
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


def measure_noise(arguments: argparse.Namespace, study: Study, console: Console) -> int:
    """Measure the gradients of a policy, and add its numbers to the file beside the cells."""
    from benchmarks.language_model.noise import measure, table_of

    policy = starting_policy(study, arguments.output) if arguments.policy == START else arguments.policy
    name = START if arguments.policy == START else Path(policy).name
    path = arguments.numbers.with_stem(f"{arguments.numbers.stem}_noise")
    known = json.loads(path.read_text())["policies"] if path.exists() else {}
    command = f"python -m benchmarks.language_model noise --task {study.name} --policy {name}"
    origin = _provenance(study) | commit() | {"command": f"{command} --prompts {arguments.prompts}"}
    known[name] = measure(study.task, policy, arguments.prompts) | {"provenance": origin}
    write_json(path, {"policies": known}, DIGITS)
    for each, found in known.items():
        console.print(table_of(each, found))
    return 0


def starting_policy(study: Study, output: Path) -> str:
    """Folder of the policy that a study starts from, which is fine-tuned if it has to be."""
    from benchmarks.language_model.starts import fine_tune
    from tempo_trl.demo.language_model import language_model

    if study.start is None:
        return language_model().path
    folder = output / study.start.folder
    fine_tune(study.task, study.start, folder)
    return str(folder)


def planned(arguments: argparse.Namespace, cells: Cells) -> Iterator[Cell]:
    """The cells of a stage, of the arms asked for, in the order in which they run."""
    study, rates = cells.study, cells.rates()
    wanted = arguments.arms.split(",") if arguments.arms else None
    for cell in study.sweep(cells.to_try, cells.best_two) if arguments.stage == "sweep" else study.final(rates):
        if wanted is None or cell.arm in wanted:
            yield replace(cell, steps=arguments.steps) if arguments.steps and cell.arm in study.arms else cell


def carry_out(arguments: argparse.Namespace, cells: Cells, console: Console) -> None:
    """
    Run the cells that are missing, as many at a time as asked for. What has been measured in the meantime chooses the
    next one: the sweep goes on beside the best rate. A cell that failed is not run again.

    Raises:
        RuntimeError: runs failed. The others were carried out.
    """
    running: dict[Future, Cell] = {}
    failed: list[Cell] = []
    begun, longest = time.monotonic(), 0.0

    def missing() -> list[Cell]:
        return [cell for cell in planned(arguments, cells) if cell not in cells]

    def next_cell() -> Cell | None:
        if len(running) == arguments.jobs or time.monotonic() - begun + longest > 60 * arguments.minutes:
            return None
        return next((cell for cell in missing() if cell not in [*running.values(), *failed]), None)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        while True:
            while cell := next_cell():
                console.print(f"{time.strftime('%H:%M')} {cell.name}", highlight=False)
                running[pool.submit(measure, arguments, cells, cell)] = cell
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                try:
                    longest = max(longest, future.result())
                except RuntimeError as error:
                    failed.append(cell)
                    console.print(str(error), markup=False, highlight=False)
    if failed:
        raise RuntimeError(f"{len(failed)} runs failed. Repeat the command to resume them.")
    if left_out := len(missing()):
        console.print(f"{left_out} runs or more are left out for want of time.")


def measure(arguments: argparse.Namespace, cells: Cells, cell: Cell) -> float:
    """Run a cell on its share of the cores and add its numbers, also where the study was stopped in the meantime.

    Returns:
        `float`: the seconds that it took.
    """
    begun, study, folder = time.monotonic(), cells.study, arguments.output / cell.name
    train(study, cell, folder, max(1, os.cpu_count() // arguments.jobs), arguments.nice)
    cells.add(numbers(study, cell, folder), _provenance(study))
    return time.monotonic() - begun


def _jobs() -> int:
    """One run for each core, or one in all on a GPU."""
    import torch

    return 1 if torch.cuda.is_available() else os.cpu_count()


def _provenance(study: Study) -> dict:
    weights = "SmolLM2-135M-Instruct in 4 bits (Q4_1), read into float32"
    return {"command": study.command, "weights": weights, "machine": machine()}


if __name__ == "__main__":
    sys.exit(main())
