"""The runs that are compared: what they are and what they left. One was trained, or evaluated, or both."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tempo_trl.data import BENCHMARKS
from tempo_trl.methods import METHODS
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_names
from tempo_trl.runs.record import FOLDER as RECORD_FOLDER
from tempo_trl.runs.record import RECORD, read_record
from tempo_trl.runs.results import FOLDER, Result, read_results
from tempo_trl.runs.trees import recorded_steps

NAMES = ("base", *METHODS)
# `tempo`, `tempo-seed0`; not `tempo_trl` or `tempo_demo`, which hold runs of every method.
SEED = re.compile(r"seed[-_=]?(\d+)")
OF_A_METHOD = re.compile(rf"({'|'.join(NAMES)})([-_.]?{SEED.pattern})?")
# Settings in which runs of one method may differ and still be its seeds.
INCIDENTAL = re.compile(
    "seed|output|logging|log_|run_name|save|push|hub|report|resume|disable_tqdm|dataloader|eval|do_|trackio|project"
)


@dataclass(frozen=True)
class ComparedRun:
    """
    What one folder holds.

    Args:
        method: `tempo`, `grpo`, ..., or the label that was given.
        model: Name of the model that was trained, in lower case and without its owner; None if nothing tells.
        trained_on: Task or dataset; None if nothing tells, or nothing was trained.
        log: Trainer's `log_history`, empty without training.
        results: What was measured, empty without evaluation.
        settings: The record's configuration, empty without a record.
    """

    folder: Path
    method: str
    model: str | None
    trained_on: str | None
    seed: int | None
    log: list[dict] = field(repr=False)
    results: list[Result] = field(repr=False)
    settings: dict = field(repr=False)


def read_runs(folders: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[ComparedRun]:
    """
    The runs of `folders`, in their order.

    A run's method, model, task and seed are those of its record (`tempo/run.json`); without one those that its path
    names (`runs/qwen3-1.7b/math/tempo`, `demo/tempo-seed1`). A label takes the place of the method; a path that names
    none has the folder's name for it. The folder `evaluation` of a run has the run's record and name.

    Raises:
        ValueError: a folder that is no run, the same folder twice, another number of labels than of folders, or a
            file that is not what it should be.
    """
    paths = [Path(folder) for folder in folders]
    if labels and len(labels) != len(paths):
        raise ValueError(f"expected a label for each of the {len(paths)} runs, in their order, got {len(labels)}.")
    resolved = [_home(path).resolve() for path in paths]
    twice = next((path for path, full in zip(paths, resolved, strict=True) if resolved.count(full) > 1), None)
    if twice:
        raise ValueError(f"{twice} was given twice: it would count as two independent runs.")
    return [_read_run(path, label) for path, label in zip(paths, labels or [None] * len(paths), strict=True)]


def _read_run(folder: Path, label: str | None) -> ComparedRun:
    log, results = training_log(folder), read_results(folder)
    if not (_has_record(folder) or log or results or recorded_steps(folder)):
        what = "no run" if folder.is_dir() else "no folder" if folder.exists() else "not there"
        raise ValueError(
            f"{folder} is {what}: expected trainer_state.json in it or in its checkpoints, {FOLDER}/*.json, or "
            f"{RECORD_FOLDER}/{RECORD}. Give the output folder of `tempo-trl train`, or of `tempo-trl evaluate`."
        )
    home = _home(folder)
    record = read_record(home) if _has_record(home) else {}
    identity = _of_record(record) if record else _of_path(home, is_trained=bool(log))
    identity["method"] = label or identity["method"]
    return ComparedRun(folder, **identity, log=log, results=results, settings=record.get("config") or {})


def _has_record(folder: Path) -> bool:
    return (folder / RECORD_FOLDER / RECORD).is_file()


def _home(folder: Path) -> Path:
    """The run that a folder belongs to: its parent if it is a run's `evaluation`."""
    is_part = _name(folder) == FOLDER and not _has_record(folder)
    return Path(os.path.normpath(folder / "..")) if is_part else folder


def _name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name  # of `.`, too


def _of_record(record: dict) -> dict:
    config, dataset = record.get("config") or {}, record.get("dataset") or {}
    of_hub = {benchmark.hub_id: name for name, benchmark in reversed(BENCHMARKS.items())}
    hub_id = dataset.get("hub_id")
    model = (record.get("model") or {}).get("name") or ""
    return {
        "method": _method(record, config.get("training", {})),
        "model": model.rpartition("/")[2].lower() or None,
        "trained_on": config.get("script", {}).get("task") or of_hub.get(hub_id, hub_id),
        "seed": record.get("seed"),
    }


def _method(record: dict, training: dict) -> str:
    name = (record.get("method") or "unknown").lower()
    # HEPO is GRPOTrainer with one setting, and the prefix baseline TEMPOTrainer.
    if name == "tempo" and training.get("advantage_estimator") == "prefix_baseline":
        return "prefix_baseline"
    return "hepo" if name == "grpo" and training.get("top_entropy_quantile", 1.0) < 1 else name


def _of_path(folder: Path, is_trained: bool) -> dict:
    parts = _named(folder)
    methods = [match[1] for part in parts if (match := OF_A_METHOD.fullmatch(part))]
    seeds = [match[1] for part in parts if (match := SEED.search(part))]
    is_base = parts[0] in _recipe_models() and not is_trained  # as it is on the Hub
    return {
        "method": "base" if is_base else methods[0] if methods else _name(folder),
        "model": next((part for part in parts if part in _recipe_models()), None),
        "trained_on": None if is_base else next((part for part in parts if part in BENCHMARKS), None),
        "seed": int(seeds[0]) if seeds else None,
    }


def _named(folder: Path) -> list[str]:
    """
    The components of a path that tell of a run, innermost first, in lower case.

    They are those that were given, since a folder further up may have any name; and those from the model's on, for
    who has gone into `runs/qwen3-1.7b/math` and gives `tempo`.
    """
    whole = [part.lower() for part in Path(os.path.abspath(folder)).parts]
    given = [part for part in Path(os.path.normpath(folder)).parts if part != ".."]
    models = [i for i, part in enumerate(whole) if part in _recipe_models()]
    return whole[min([len(whole) - max(1, len(given)), *models[-1:]]) :][::-1]


def groups(runs: Sequence[ComparedRun]) -> dict[tuple, list[ComparedRun]]:
    """Runs by (model, what they were trained on, method): those of one group differ in their seed alone."""
    found = {}
    for run in runs:
        found.setdefault((run.model, run.trained_on, run.method), []).append(run)
    return found


def mismatches(runs: Sequence[ComparedRun]) -> list[str]:
    """What speaks against taking the runs of a group for independent runs of the same thing."""
    return [note for own in groups(runs).values() for other in own[1:] for note in _mismatches(own[0], other)]


def _mismatches(first: ComparedRun, other: ComparedRun) -> list[str]:
    notes, pair = [], f"{first.folder} and {other.folder} count as two seeds of {first.method}"
    if first.seed is not None and first.seed == other.seed:
        notes.append(f"{pair}, but both have seed {first.seed}.")
    if odd := _differing(first.settings, other.settings):
        notes.append(f"{pair}, but differ in {', '.join(odd)}: give them different names with --label.")
    if odd := _answering(first, other):
        notes.append(f"{pair}, but {odd[0]} answered in the one, {odd[1]} in the other: tell them apart with --label.")
    return notes


def _answering(*pair: ComparedRun) -> list[str]:
    """The models whose answers two runs hold if they differ in more than a seed, and are not the runs' own."""
    names = [sorted({result.model for result in run.results if result.model}) for run in pair]
    own = [[_home(run.folder).resolve().name] for run in pair]  # as `evaluate` calls a model that lies in a folder
    without_seeds = [{SEED.sub("", name) for name in each} for each in names]
    is_alike = names == own or without_seeds[0] == without_seeds[1]
    return [" and ".join(each) for each in names] if all(names) and not is_alike else []


def _differing(a: dict, b: dict) -> list[str]:
    """Settings that differ, if both runs have a record; of `max_steps` and the like, too."""
    if not (a and b):
        return []
    flat = [
        {key: value for part in x.values() if isinstance(part, dict) for key, value in part.items()} for x in (a, b)
    ]
    keys = sorted(flat[0].keys() | flat[1].keys())
    return [key for key in keys if not INCIDENTAL.search(key) and flat[0].get(key) != flat[1].get(key)]


@cache
def _recipe_models() -> set[str]:
    """Models that recipes train, as their folders are called."""
    return {name.split("/")[0] for name in recipe_names()} - {"demo"}
