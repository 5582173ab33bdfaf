"""The checkpoints of a run, and Trainer's log in them."""

import json
import zipfile
from pathlib import Path

from safetensors import SafetensorError, safe_open

from tempo_trl.runs.files import read_json

STATE = "trainer_state.json"
SPEED = "steps_per_second"  # which Trainer logs of every evaluation, after the prefix of its metrics


def training_log(run_dir: Path) -> list[dict]:
    """Trainer's log of a finished run, or up to the last checkpoint of an unfinished one; [] without either.

    Raises:
        ValueError: the log of a finished run is not JSON.
    """
    if (run_dir / STATE).is_file() and unfinished_checkpoint(run_dir) is None:
        return _log_history(run_dir / STATE)
    return next(filter(None, map(_log_if_whole, checkpoints(run_dir))), [])


def unfinished_checkpoint(run_dir: Path) -> Path | None:
    """The last checkpoint of a finished run that trains on and has not ended again; None otherwise.

    A checkpoint of a later step that is older than the end of the run is of another run in the same folder.
    """
    end, last = run_dir / STATE, next((path for path in checkpoints(run_dir) if (path / STATE).is_file()), None)
    if last is None or not end.is_file() or (last / STATE).stat().st_mtime <= end.stat().st_mtime:
        return None
    return last if _step(last) > max((entry.get("step", 0) for entry in _log_history(end)), default=0) else None


def checkpoints(run_dir: Path) -> list[Path]:
    """The checkpoint folders of a run, the last one first, with those that a killed run left incomplete."""
    folders = [path for path in run_dir.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(folders, key=_step, reverse=True)


def refuse_a_torn_checkpoint(folder: Path) -> None:
    """
    Raise ValueError unless a folder has a whole checkpoint. A run that is killed while it saves leaves one without
    `trainer_state.json`, which Trainer writes last; a full disk, or a machine that stops, files that break off. The
    folder of a run, which has checkpoints or `tempo/`, may have that file as well, but no state of the optimizer.
    """
    inside = checkpoints(folder)
    if inside or (folder / "tempo").is_dir():
        such = f", such as {inside[0]}" if inside else ""
        raise ValueError(f"{folder} is the folder of a run. Give one of its checkpoints{such}, or last.")
    if not (folder / STATE).is_file():
        raise ValueError(f"{folder} has no {STATE}, which Trainer saves last. Give another checkpoint.")
    for path in sorted(folder.rglob("*")):
        try:
            if path.suffix == ".json":
                json.loads(path.read_text("utf-8"))
            elif path.suffix == ".safetensors":
                with safe_open(path, "np"):
                    pass
            elif path.suffix in (".pt", ".pth", ".bin"):  # torch.save writes a zip file
                zipfile.ZipFile(path).close()
        except (ValueError, SafetensorError, zipfile.BadZipFile) as error:
            advice = f"Remove {folder}, and resume from the one before it."
            raise ValueError(f"{path} cannot be read to its end: {error}. {advice}") from error


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _log_if_whole(checkpoint: Path) -> list[dict]:
    """The log in a checkpoint; [] while the run writes it, or where it has removed it."""
    try:
        return _log_history(checkpoint / STATE)
    except (FileNotFoundError, ValueError):
        return []


def _log_history(path: Path) -> list[dict]:
    advice = "Restore it, or remove it."
    try:
        return [_told_apart(entry) for entry in read_json(path, advice)["log_history"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the state of a Trainer. {advice}") from error


def _told_apart(entry: dict) -> dict:
    """
    An entry in which TRL's metrics of one of several evaluation datasets have its name: `eval_NAME_reward`. TRL logs
    `eval_reward` for each of them, and Trainer `eval_NAME_loss`.
    """
    ours = (key.removesuffix(SPEED) for key in entry if key.startswith("eval_") and key.endswith(SPEED))
    prefix = next(ours, "eval_")
    shared = {key for key in entry if key.startswith("eval_") and not key.startswith(prefix)}
    return {prefix + key.removeprefix("eval_") if key in shared else key: value for key, value in entry.items()}
