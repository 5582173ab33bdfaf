"""Learning curves with the real trainers, one command per figure.

    python -m benchmarks.learning chain

trains the missing runs of the study, two at a time, prints its tables, and writes learning_chain.png and
learning_chain.json. Repeat the command to resume. docs/evidence/toy_tasks.md says how it is measured.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported


def main(argv: list[str] | None = None, program: str = "learning", description: str | None = __doc__) -> int:
    """Run studies of `benchmarks.{program}`. Returns 0 if all were carried out, 1 if one failed, 130 after Ctrl-C."""
    from rich.console import Console

    from benchmarks.learning.starts import Untaught
    from benchmarks.learning.workers import Failed

    studies = import_module(f"benchmarks.{program}.studies").STUDIES
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{program}",
        description=description,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.set_defaults(program=program)
    parser.add_argument("studies", nargs="+", choices=tuple(studies), metavar="STUDY", help=", ".join(studies))
    parser.add_argument(
        "--quick", action="store_true", help="a minute: two generations, a few methods, one rate, one seed"
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of final runs per arm (default: 5)")
    parser.add_argument("--parallel", type=int, default=2, help="concurrent runs, one core each (default: 2)")
    parser.add_argument("--output", type=Path, default=Path(f"runs/{program}"), help="folder for the runs")
    parser.add_argument("--figures", type=Path, default=Path("docs/evidence"), help="folder for figures and numbers")
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1 or arguments.parallel < 1:
        parser.error("--seeds and --parallel must be at least 1. Raise them.")
    console = Console(width=None if sys.stdout.isatty() else 200)
    try:
        for name in arguments.studies:
            _carry_out(name, arguments, console)
    except (Failed, Untaught) as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print(f"\nStopped. The runs are in {arguments.output}. Repeat the command to resume them.")
        return 130
    return 0


def _carry_out(name: str, arguments: argparse.Namespace, console) -> None:
    from benchmarks.learning import figures, show
    from benchmarks.provenance import caption

    experiment = _experiment(arguments, console)
    study = experiment.study(name)
    results, tried = experiment.measure(study)
    path = arguments.figures / f"{arguments.program}_{name}.png"
    origin = show.provenance(results, _command(name, arguments))
    figures.draw(study, results, path, caption(origin))
    show.print_sweep(tried, console)
    show.print_results(study, results, console)
    numbers = path.with_suffix(".json")
    show.write_json(study, results, tried, origin, numbers)
    console.print(f"Figure: {path}   numbers: {numbers}", highlight=False)


def _experiment(arguments: argparse.Namespace, console):
    experiment = import_module(f"benchmarks.{arguments.program}.experiment").Experiment
    if arguments.quick:
        return experiment(arguments.output / "quick", arguments.parallel, console, seeds=(0,), quick=True)
    return experiment(arguments.output, arguments.parallel, console, seeds=tuple(range(arguments.seeds)))


def _command(name: str, arguments: argparse.Namespace) -> str:
    short = " --quick" if arguments.quick else "" if arguments.seeds == 5 else f" --seeds {arguments.seeds}"
    return f"python -m benchmarks.{arguments.program} {name}{short}"


if __name__ == "__main__":
    sys.exit(main())
