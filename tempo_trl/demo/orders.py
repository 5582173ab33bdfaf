"""The demo: train SmolLM2-135M-Instruct to write orders as JSON with span credit, and show what changed.

Repeat the command to resume an interrupted run from its last checkpoint. A finished run is not repeated.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tempo_trl.demo.language_model import language_model
from tempo_trl.demo.run import Run, Watch
from tempo_trl.demo.show import show
from tempo_trl.report.command import report

METHOD, BASELINE = "span_credit", "grpo"


def main(output: str, quick: bool, compare: bool) -> int:
    """
    Train, show the result, and write the report.

    Args:
        output (`str`):
            Folder for the runs and the report.
        quick (`bool`):
            A few steps only.
        compare (`bool`):
            Whether to train GRPO as well, for as many seconds.

    Returns:
        `int`: exit status: 0, 130 after Ctrl-C, 1 if a run failed.

    Raises:
        FileNotFoundError: there is no language model.
    """
    source = language_model()
    console, folder = Console(), Path(output) / ("orders-quick" if quick else "orders")
    console.print(f"Model: SmolLM2-135M-Instruct, from {source.origin}", highlight=False, soft_wrap=True)
    runs = [Run(method, folder / method, quick) for method in (METHOD, *([BASELINE] if compare else []))]
    try:
        failed = train(runs, console)
    except KeyboardInterrupt:
        for run in runs:
            run.stop()
        console.print(f"\nStopped. The runs are in {folder}. Repeat the command to resume them.", soft_wrap=True)
        return 130
    if failed is not None:
        log = failed.folder / "run.log"
        console.print(f"A run failed ({failed.method}). Last lines of {log}:", style="bold", soft_wrap=True)
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), markup=False, highlight=False)
        return 1
    show(runs, folder, console)
    path = report([run.folder for run in runs], folder / "report.html")
    console.print(f"\nCredit per token: open {path} in a browser.", style="bold", highlight=False, soft_wrap=True)
    return 0


def train(runs: Sequence[Run], console: Console) -> Run | None:
    """
    Train the runs that are not finished, one after the other, and show how far they are: in a terminal with a bar,
    elsewhere on a line per step. Returns a run that failed, or None.
    """
    waiting = [run for run in runs if not run.finished()]
    if finished := [run.method for run in runs if run not in waiting]:
        console.print(f"Finished before: {', '.join(finished)}. To train again, remove the folder of the run.")
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for run in waiting:
            bar, watch, ended = progress.add_task(run.method, total=run.seconds, state=""), Watch(run), False
            run.start()
            while not ended:
                time.sleep(0.3)
                ended = run.process.poll() is not None  # asked first: what it wrote before it ended is looked at
                if watch.look() and not console.is_terminal:
                    console.print(f"{run.method}: {watch.state(curve=False)}", markup=False, highlight=False)
                progress.update(bar, completed=watch.spent(), state=watch.state(curve=True))
            if run.process.returncode or not run.finished():
                return run
    return None
