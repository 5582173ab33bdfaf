"""A run as others see it: method, model, data and seed from its record, with its log and results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tempo_trl.data import BENCHMARKS
from tempo_trl.methods import METHODS
from tempo_trl.runs.log import training_log
from tempo_trl.runs.record import FOLDER as RECORD_FOLDER
from tempo_trl.runs.record import RECORD, all_settings, changed_settings, read_record
from tempo_trl.runs.results import FOLDER, Result, read_results
from tempo_trl.runs.trees import recorded_steps


@dataclass(frozen=True)
class Run:
    """
    The run in one folder.

    Args:
        method: `tempo`, `grpo`, ..., or the given label; without a record the folder's name, or the path if another
            folder has that name.
        model: Name of the trained model, in lower case and without its owner; None if unknown.
        trained_on: Task or dataset; None if unknown.
        log: Trainer's `log_history`, empty without training.
        results: Evaluation results, empty without evaluation.
        settings: The record's configuration, empty without a record.
        started: When the run that trained these weights last started, empty if unknown. A run that goes on leaves its
            checkpoints as they are: for them, it is empty.
    """

    folder: Path
    method: str
    model: str | None = None
    trained_on: str | None = None
    seed: int | None = None
    log: list[dict] = field(default_factory=list, repr=False)
    results: list[Result] = field(default_factory=list, repr=False)
    settings: dict = field(default_factory=dict, repr=False)
    started: str = ""


def read_runs(folders: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[Run]:
    """
    The runs of `folders`, in their order. The folder `evaluation` of a run, and a checkpoint, have the run's record.

    Raises:
        ValueError: a folder is not a run or is given twice, the numbers of labels and folders differ, or a file is
            invalid.
    """
    paths = [Path(folder) for folder in folders]
    if labels and len(labels) != len(paths):
        raise ValueError(f"got {len(labels)} labels, expected one for each of the {len(paths)} runs, in their order.")
    places = [place_of(path) for path in paths]
    twice = next((path for path, place in zip(paths, places, strict=True) if places.count(place) > 1), None)
    if twice:
        raise ValueError(f"got {twice} twice, which would count as two independent runs. Give it once.")
    return [_read_run(*run) for run in zip(paths, labels or [None] * len(paths), labels_of(paths), strict=True)]


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Names of the folders of runs; the path of those that share one."""
    names = [place_of(folder).name for folder in folders]
    return [str(path) if names.count(name) > 1 else name for path, name in zip(folders, names, strict=True)]


def names_of(runs: Sequence[Run]) -> list[str]:
    """
    The name that a run shares with those that differ from it in seeds alone: its method with the model and the data if
    these differ, and with the settings that differ where all of this is the same.
    """
    of_runs = [(run.model, run.trained_on) for run in runs]
    divides = [len(set(values)) > 1 for values in zip(*of_runs, strict=True)]
    told = [[value or "unknown" for value, own in zip(each, divides, strict=True) if own] for each in of_runs]
    alike: dict[tuple, list[dict]] = {}
    for run, own in zip(runs, told, strict=True):
        alike.setdefault((run.method, *own), []).append(run.settings)
    for run, own in zip(runs, told, strict=True):
        own += _odd_settings(run.settings, alike[run.method, *own])
    return [f"{run.method} ({', '.join(own)})" if own else run.method for run, own in zip(runs, told, strict=True)]


def _odd_settings(own: dict, others: Sequence[dict]) -> list[str]:
    """The settings, such as `beta 0.1`, by which a run is no seed of some of the others."""
    names = {name for other in others for name in changed_beside_seeds(own, other)}
    return [f"{name} {all_settings(own).get(name)}" for name in sorted(names)]


def changed_beside_seeds(own: dict, other: dict) -> list[str]:
    """The settings by which two runs of one method are no seeds of one training."""
    return [name for name in changed_settings(own, other) if "seed" not in name]


def place_of(folder: Path) -> Path:
    """The folder of the model: the parent of a run's `evaluation`."""
    full = folder.resolve()
    return full.parent if full.name == FOLDER and not _has_record(full) else full


def home_of(folder: Path) -> Path:
    """The folder of the run: that of the model, or above it, where the run's record lies."""
    place = place_of(folder)
    return next((path for path in (place, place.parent) if _has_record(path)), place)


def record_of(home: Path) -> dict:
    """The record of the run in a folder; empty without one."""
    return read_record(home) if _has_record(home) else {}


def _has_record(folder: Path) -> bool:
    return (folder / RECORD_FOLDER / RECORD).is_file()


def _read_run(folder: Path, label: str | None, name: str) -> Run:
    home, log, results = home_of(folder), training_log(folder), read_results(folder)
    record = record_of(home)
    if not (record or log or results or recorded_steps(folder)):
        expected = f"trainer_state.json in it or in its checkpoints, {FOLDER}/*.json, or {RECORD_FOLDER}/{RECORD}"
        raise ValueError(f"{folder} is not the folder of a run, expected {expected}.")
    identity = _of_record(record) if record else {"method": name}
    identity |= {"method": label} if label else {}
    started = record.get("started", "") if home == place_of(folder) else ""
    return Run(folder, **identity, log=log, results=results, settings=record.get("config") or {}, started=started)


def _of_record(record: dict) -> dict:
    config, dataset = record.get("config") or {}, record.get("dataset") or {}
    script, hub_id = config.get("script", {}), dataset.get("hub_id")
    of_hub = {benchmark.hub_id: name for name, benchmark in reversed(BENCHMARKS.items())}
    model = (record.get("model") or {}).get("name") or ""
    return {
        "method": script.get("method") or _key(record.get("method") or "unknown"),
        "model": model.rpartition("/")[2].lower() or None,
        "trained_on": script.get("task") or of_hub.get(hub_id, hub_id) or script.get("dataset_name"),  # a folder
        "seed": record.get("seed"),
    }


def _key(name: str) -> str:
    """The key of a method in the table, by its trainer's name."""
    plain = name.lower().replace("_", "")
    return next((key for key in METHODS if key.replace("_", "") == plain), name)
