"""`tempo-trl report`: an HTML file about one or more runs, with its pictures as PNG and SVG beside it."""

import time
from collections.abc import Sequence
from pathlib import Path

from tempo_trl.report.collect import RecordedRun, read_inside
from tempo_trl.report.page import page
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.run import labels_of, names_of, read_runs

NAME = "report.html"


def main(runs: list[str], output: str | None, pictures: bool = True) -> int:
    """Write the report of `runs` to `output` and print where it is; return the exit status. Raises as [`report`]."""
    begin = time.monotonic()
    path = report(runs, output, pictures)
    size = path.stat().st_size / 1e6
    print(f"Report: {path} ({size:.1f} MB, {time.monotonic() - begin:.0f} s). Open it in a browser. It works offline.")
    if pictures and any(path.with_suffix("").glob("*.png")):
        print(f"Pictures: {path.with_suffix('')}/*.png and *.svg")
    return 0


def report(runs: Sequence[str | Path], output: str | Path | None = None, pictures: bool = True) -> Path:
    """
    Write a report.

    Args:
        runs (`Sequence[str or Path]`):
            Output folders of runs, which may still be training.
        output (`str` or `Path`, *optional*):
            The HTML file, whose name gets `.html` if it lacks it, or a folder, which gets `report.html`. Defaults to
            the first run's folder. Pictures go to a folder of the same name without the suffix.
        pictures (`bool`, *optional*, defaults to `True`):
            Whether to draw pictures.

    Returns:
        `Path` of the HTML file.

    Raises:
        ValueError: a folder is not a run, or contains an invalid file.
    """
    found = read_runs(runs)
    labels = labels_of([run.folder for run in found])
    inside = [read_inside(*run) for run in zip(found, labels, names_of(found), strict=True)]
    return write_report(inside, ", ".join(labels), Path(output) if output else Path(runs[0]) / NAME, pictures)


def write_report(inside: Sequence[RecordedRun], title: str, path: Path, pictures: bool = True) -> Path:
    """Write the page to `path`, and its pictures beside it. Returns the path of the page."""
    path = path / NAME if path.is_dir() else path
    path = path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
    write_atomically(path, page(inside, title))
    if pictures:
        from tempo_trl.report.pictures import draw

        draw(inside, path.with_suffix(""))
    return path
