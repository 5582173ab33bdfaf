"""The command: `python -m benchmarks.estimators QUESTION [--quick] [--output FOLDER]`."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.estimators.evidence import Effort, commit, provenance, write
from benchmarks.estimators.questions import (
    adaptive,
    agents,
    signals,
    trees,
    where,
)

QUESTIONS = {
    "where": where,
    "adaptive": adaptive,
    "trees": trees,
    "signals": signals,
    "agents": agents,
}
QUICK_BATCHES, QUICK_BUDGET = 3, 480


def answer(question: str, quick: bool, folder: Path, at: dict[str, Any], console: Console) -> None:
    """Measure, print the table, write figure and numbers."""
    start, module = time.process_time(), QUESTIONS[question]
    effort = Effort(QUICK_BATCHES, QUICK_BUDGET, quick) if quick else Effort(module.BATCHES)
    records = module.measure_records(effort)
    console.print(module.table(records))
    origin = provenance(question, effort, at) | {"cpu_seconds": round(time.process_time() - start)}
    paths = write(folder, question, origin, records, module.draw(records))
    console.print(f"{' and '.join(map(str, paths))} after {origin['cpu_seconds']} s of CPU time")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("question", choices=(*QUESTIONS, "all"), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="only check that it runs: few cells, small batches")
    parser.add_argument("--output", type=Path, default=Path("docs/evidence"), help="folder for figures and numbers")
    args = parser.parse_args(arguments)
    at = commit()  # now: it may move on while this runs
    for question in QUESTIONS if args.question == "all" else (args.question,):
        answer(question, args.quick, args.output, at, Console(width=160))


if __name__ == "__main__":
    main()
