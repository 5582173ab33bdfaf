"""Read the runs to compare: their identity, logs and results. A run was trained, or evaluated, or both."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from tempo_trl.data import BENCHMARKS
from tempo_trl.methods import METHODS
from tempo_trl.runs.files import read_all
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_names
from tempo_trl.runs.record import FOLDER as RECORD_FOLDER
from tempo_trl.runs.record import RECORD, changed_settings, read_record
from tempo_trl.runs.results import FOLDER, Result, of_other_weights, read_results
from tempo_trl.runs.trees import PREFIX, read_metadata, recorded_steps, trees_path

NAMES = ("base", *METHODS)
# `tempo`, `tempo-seed0`; not `tempo_trl` or `tempo_demo`, which hold runs of every method.
SEED = re.compile(r"seed[-_=]?(\d+)")
# Settings that decide what the rows and prompts of a task are.
DATA = ("train_file", "dataset_config", "prompt_style", "system_prompt", "instruction", "drop_leaked_rows")
OF_A_METHOD = re.compile(rf"({'|'.join(NAMES)})([-_.]?{SEED.pattern})?")


@dataclass(frozen=True)
class ComparedRun:
    """
    The run in one folder.

    Args:
        method: `tempo`, `grpo`, ..., or the given label.
        model: Name of the trained model, in lower case and without its owner; None if unknown.
        trained_on: Task or dataset; None if unknown, or if nothing was trained.
        log: Trainer's `log_history`, empty without training.
        results: Evaluation results, empty without evaluation.
        settings: The record's configuration, empty without a record.
        started: When the run that trained these weights last started, empty if unknown. A run that goes on leaves its
            checkpoints as they are: for them, it is empty.
    """

    folder: Path
    method: str
    model: str | None
    trained_on: str | None
    seed: int | None
    log: list[dict] = field(repr=False)
    results: list[Result] = field(repr=False)
    settings: dict = field(repr=False)
    started: str = ""


def read_runs(folders: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[ComparedRun]:
    """
    The runs of `folders`, in their order.

    A run's method, model, task and seed come from its record (`tempo/run.json`), or without a record from its path
    (`runs/qwen3-1.7b/math/tempo`, `sums/tempo-seed1`). A label replaces the method. If the path contains no method,
    the folder's name is used. The folder `evaluation` of a run has the run's record and name, a checkpoint its record.

    Raises:
        ValueError: a folder is not a run or is given twice, the numbers of labels and folders differ, or a file is
            invalid.
    """
    paths = [Path(folder) for folder in folders]
    if labels and len(labels) != len(paths):
        raise ValueError(f"got {len(labels)} labels, expected one for each of the {len(paths)} runs, in their order.")
    resolved = [_home(path).resolve() for path in paths]
    twice = next((path for path, full in zip(paths, resolved, strict=True) if resolved.count(full) > 1), None)
    if twice:
        raise ValueError(f"got {twice} twice, which would count as two independent runs. Give it once.")
    given = zip(paths, labels or [None] * len(paths), strict=True)
    return read_all(partial(_read_run, path, label) for path, label in given)


def read_files(folder: Path) -> tuple[list[dict], list[Result], dict]:
    """
    Log, results and record of a run, empty where it has none.

    Raises:
        ValueError: files are invalid, recorded trees included; the message names all of them.
    """
    trained = _run_of(folder)
    trees = [trees_path(folder, mode, step) for mode in PREFIX for step in recorded_steps(folder, mode)]
    log, results, record, *_ = read_all(
        [
            partial(training_log, folder),
            partial(read_results, folder),
            partial(read_record, trained) if _has_record(trained) else dict,
            *(partial(read_metadata, path) for path in trees),
        ]
    )
    return log, results, record


def _read_run(folder: Path, label: str | None) -> ComparedRun:
    log, results, record = read_files(folder)
    if not (_has_record(folder) or log or results or recorded_steps(folder)):
        what = "is not a run" if folder.is_dir() else "is not a folder" if folder.exists() else "does not exist"
        raise ValueError(
            f"{folder} {what}, expected trainer_state.json in it or in its checkpoints, {FOLDER}/*.json, or "
            f"{RECORD_FOLDER}/{RECORD}. Give the output folder of `tempo-trl train`, or of `tempo-trl evaluate`."
        )
    home = _home(folder)
    identity = _of_record(record) if record else _of_path(home, is_trained=bool(log))
    identity["method"] = label or identity["method"]
    started = record.get("started", "") if home == _run_of(folder) else ""
    settings = record.get("config") or {}
    return ComparedRun(folder, **identity, log=log, results=results, settings=settings, started=started)


def _has_record(folder: Path) -> bool:
    return (folder / RECORD_FOLDER / RECORD).is_file()


def _home(folder: Path) -> Path:
    """The run that a folder belongs to: its parent if it is a run's `evaluation`."""
    is_part = _name(folder) == FOLDER and not _has_record(folder)
    return Path(os.path.normpath(folder / "..")) if is_part else folder


def _run_of(folder: Path) -> Path:
    """The run that trained what is in a folder: the parent of a checkpoint, whose record is there."""
    home = _home(folder)
    is_part = _name(home).startswith("checkpoint-") and not _has_record(home)
    return Path(os.path.normpath(home / "..")) if is_part else home


def _name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name  # of `.`, too


def _of_record(record: dict) -> dict:
    config, dataset = record.get("config") or {}, record.get("dataset") or {}
    script = config.get("script", {})
    of_hub = {benchmark.hub_id: name for name, benchmark in reversed(BENCHMARKS.items())}
    hub_id = dataset.get("hub_id")
    model = (record.get("model") or {}).get("name") or ""
    return {
        "method": _method(record, config.get("training", {})),
        "model": model.rpartition("/")[2].lower() or None,
        "trained_on": script.get("task") or of_hub.get(hub_id, hub_id) or script.get("dataset_name"),  # a folder
        "seed": record.get("seed"),
    }


def _method(record: dict, training: dict) -> str:
    name = (record.get("method") or "unknown").lower()
    # HEPO is GRPOTrainer with one setting.
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
    The components of a path that identify a run, innermost first, in lower case.

    These are the components that the user gave, because folders further up may have any name, and those from the
    model's folder on, for a user who gives `tempo` inside of `runs/qwen3-1.7b/math`.
    """
    whole = [part.lower() for part in Path(os.path.abspath(folder)).parts]
    given = [part for part in Path(os.path.normpath(folder)).parts if part != ".."]
    models = [i for i, part in enumerate(whole) if part in _recipe_models()]
    return whole[min([len(whole) - max(1, len(given)), *models[-1:]]) :][::-1]


def groups(runs: Sequence[ComparedRun]) -> dict[tuple, list[ComparedRun]]:
    """Runs by (model, training data, method). The runs of a group should only differ in their seed."""
    found = {}
    for run in runs:
        found.setdefault((run.model, run.trained_on, run.method), []).append(run)
    return found


def mismatches(runs: Sequence[ComparedRun]) -> list[str]:
    """Warnings about results that are not of a run's model, and runs of a group that are not seeds of one training."""
    found = groups(runs)
    notes = [note for run in runs for note in _foreign_results(run)]
    notes += [note for own in found.values() for other in own[1:] for note in _mismatches(own[0], other)]
    methods: dict[tuple, list[ComparedRun]] = {}
    for setting, own in found.items():
        methods.setdefault(setting[:2], []).append(own[0])
    return notes + [note for own in methods.values() for other in own[1:] for note in _other_data(own[0], other)]


def _other_data(first: ComparedRun, other: ComparedRun) -> list[str]:
    odd = [name for name in changed_settings(first.settings, other.settings) if name in DATA]
    pair = f"{first.folder} and {other.folder}"
    return [f"{pair} count as trained on {first.trained_on}, but differ in {', '.join(odd)}."] if odd else []


def _foreign_results(run: ComparedRun) -> list[str]:
    home = _home(run.folder)
    # Hashing every model would take minutes: one that is called as its folder is believed to be that.
    name = home.resolve().name
    results = [replace(result, weights=None) if result.model == name else result for result in run.results]
    found = of_other_weights(results, home, run.started)
    return [f"{run.folder}: {file} is {why}. Evaluate again, with --overwrite." for file, why in found.items()]


def _mismatches(first: ComparedRun, other: ComparedRun) -> list[str]:
    notes, pair = [], f"{first.folder} and {other.folder} count as two seeds of {first.method}"
    if _run_of(first.folder).resolve() == _run_of(other.folder).resolve():
        return [f"{pair}, but are checkpoints of one run. Give them different names with --label."]
    if first.seed is not None and first.seed == other.seed:
        notes.append(f"{pair}, but both have seed {first.seed}.")
    if odd := [name for name in changed_settings(first.settings, other.settings) if "seed" not in name]:
        notes.append(f"{pair}, but differ in {', '.join(odd)}. Give them different names with --label.")
    if odd := _answering(first, other):
        notes.append(f"{pair}, but evaluate {odd[0]} and {odd[1]}. Give them different names with --label.")
    return notes


def _answering(*pair: ComparedRun) -> list[str]:
    """The evaluated models of two runs, if their names differ in more than a seed and are not the runs' own."""
    names = [sorted({result.model for result in run.results if result.model}) for run in pair]
    own = [[_home(run.folder).resolve().name] for run in pair]  # as `evaluate` calls a model that lies in a folder
    without_seeds = [{SEED.sub("", name) for name in each} for each in names]
    is_alike = names == own or without_seeds[0] == without_seeds[1]
    return [" and ".join(each) for each in names] if all(names) and not is_alike else []


@cache
def _recipe_models() -> set[str]:
    """Models that recipes train, as their folders are called."""
    return {name.split("/")[0] for name in recipe_names()} - {"sums", "rooms"}
