"""Read Trainer's log of a run."""

import json
import reprlib
from pathlib import Path


def training_log(run_dir: Path) -> list[dict]:
    """Trainer's log of a finished run, or up to the last checkpoint of an unfinished one; [] without either.

    Raises:
        ValueError: the log is not JSON, or does not have Trainer's format.
    """
    steps = [path for path in run_dir.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    folders = [run_dir, *sorted(steps, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True)]
    for path in (folder / "trainer_state.json" for folder in folders):
        if path.is_file():
            return _log_history(path)
    return []


def _log_history(path: Path) -> list[dict]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a log of Trainer ({error!r}). Restore it, or remove it.") from error
    log = state.get("log_history") if isinstance(state, dict) else None
    if not (isinstance(log, list) and all(isinstance(entry, dict) for entry in log)):
        got = f"log_history {reprlib.repr(log)}" if isinstance(state, dict) else reprlib.repr(state)
        raise ValueError(
            f"{path} is not a log of Trainer: got {got}, expected a mapping with log_history, a list of mappings. "
            "Restore it, or remove it."
        )
    return log
