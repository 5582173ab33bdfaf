"""The command: `python -m benchmarks.estimators QUESTION [--quick] [--output FOLDER]`."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console

from benchmarks.estimators.evidence import Effort, provenance, write

QUESTIONS = ("where", "coefficient", "adaptive", "trees", "entropy", "credit")
QUICK_BATCHES = 3


def answer(question: str, quick: bool, folder: Path, console: Console) -> None:
    """Measure, print the table, write figure and numbers."""
    module = import_module(f"benchmarks.estimators.questions.{question}")
    effort = Effort(QUICK_BATCHES if quick else module.BATCHES, quick)
    start, origin = time.monotonic(), provenance(question, effort)
    records = module.measure_records(effort)
    console.print(module.table(records))
    paths = write(folder, question, origin, records, module.draw(records))
    console.print(f"{' and '.join(map(str, paths))} after {time.monotonic() - start:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("question", choices=(*QUESTIONS, "all"), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="three batches a cell, few cells: does it run?")
    parser.add_argument("--output", type=Path, default=Path("docs/evidence"), help="folder for figure and numbers")
    args = parser.parse_args(arguments)
    for question in QUESTIONS if args.question == "all" else (args.question,):
        answer(question, args.quick, args.output, Console(width=160))


if __name__ == "__main__":
    main()
