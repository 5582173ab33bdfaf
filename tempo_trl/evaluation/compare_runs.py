"""The runs that are compared: what they are and what they left. One was trained, or evaluated, or both."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tempo_trl.data import BENCHMARKS
from tempo_trl.evaluation import paper
from tempo_trl.hub.curves import training_log
from tempo_trl.hub.evaluations import FOLDER, Result, read_results
from tempo_trl.hub.provenance import FOLDER as RECORD_FOLDER
from tempo_trl.hub.provenance import RECORD, read_record
from tempo_trl.report.tree_files import recorded_steps

METHODS = (*paper.METHODS, "prefix_baseline", "grpo_lambda", "treerpo", "treerpo_entropy")
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

    def result(self, task: str, metric: str) -> Result | None:
        return next((r for r in self.results if (r.task, r.metric) == (task, metric)), None)


def read_runs(folders: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[ComparedRun]:
    """
    The runs of `folders`, in their order.

    A run's method, model, task and seed are those of its record (`tempo/run.json`); without one those that its path
    names (`runs/qwen3-1.7b/math/tempo`, `demo/tempo-seed1`). A label takes the place of the method; a path that names
    none has the folder's name for it.

    Raises:
        ValueError: a folder that is no run, the same folder twice, another number of labels than of folders, or a
            file that is not what it should be.
    """
    paths = [Path(folder) for folder in folders]
    if labels and len(labels) != len(paths):
        raise ValueError(f"expected a label for each of the {len(paths)} runs, in their order, got {len(labels)}.")
    resolved = [path.resolve() for path in paths]
    twice = next((path for path, full in zip(paths, resolved, strict=True) if resolved.count(full) > 1), None)
    if twice:
        raise ValueError(f"{twice} was given twice: it would count as two independent runs.")
    return [_read_run(path, label) for path, label in zip(paths, labels or [None] * len(paths), strict=True)]


def _read_run(folder: Path, label: str | None) -> ComparedRun:
    has_record = (folder / RECORD_FOLDER / RECORD).is_file()
    log, results = training_log(folder), read_results(folder)
    if not (has_record or log or results or recorded_steps(folder)):
        what = "no run" if folder.is_dir() else "no folder" if folder.exists() else "not there"
        raise ValueError(
            f"{folder} is {what}: expected trainer_state.json in it or in its checkpoints, {FOLDER}/*.json, or "
            f"{RECORD_FOLDER}/{RECORD}. Give the output folder of `tempo-trl train`, or of `tempo-trl evaluate`."
        )
    record = read_record(folder) if has_record else {}
    told = _of_record(record) if record else _of_path(folder)
    method = label or told.pop("method")
    return ComparedRun(
        folder, **told | {"method": method}, log=log, results=results, settings=record.get("config", {})
    )


def _of_record(record: dict) -> dict:
    config, dataset = record.get("config", {}), record.get("dataset") or {}
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


def _of_path(folder: Path) -> dict:
    parts = [part.lower() for part in reversed(folder.resolve().parts)]
    methods = [m for part in parts for m in sorted(METHODS, key=len, reverse=True) if re.match(rf"{m}($|[-_.])", part)]
    seeds = [match[1] for part in parts if (match := re.search(r"seed[-_=]?(\d+)", part))]
    name = folder.resolve().name
    return {
        "method": methods[0] if methods else "base" if name.lower() in paper.MODELS else name,  # as it is on the Hub
        "model": next((part for part in parts if part in paper.MODELS), None),
        "trained_on": next((part for part in parts if part in BENCHMARKS), None),
        "seed": int(seeds[0]) if seeds else None,
    }


def groups(runs: Sequence[ComparedRun]) -> dict[tuple, list[ComparedRun]]:
    """Runs by (model, what they were trained on, method): those of one group differ in their seed alone."""
    found = {}
    for run in runs:
        found.setdefault((run.model, run.trained_on, run.method), []).append(run)
    return found


def doubts(runs: Sequence[ComparedRun]) -> list[str]:
    """What speaks against taking the runs of a group for independent runs of the same thing."""
    notes = []
    for own in groups(runs).values():
        first = own[0]
        for other in own[1:]:
            pair = f"{first.folder} and {other.folder} count as two seeds of {first.method}"
            if first.seed is not None and first.seed == other.seed:
                notes.append(f"{pair}, but both have seed {first.seed}.")
            if odd := _differing(first.settings, other.settings):
                notes.append(f"{pair}, but differ in {', '.join(odd)}: give them different names with --label.")
    return notes


def _differing(a: dict, b: dict) -> list[str]:
    """Settings that differ, if both runs have a record; of `max_steps` and the like, too."""
    if not (a and b):
        return []
    flat = [
        {key: value for part in x.values() if isinstance(part, dict) for key, value in part.items()} for x in (a, b)
    ]
    keys = sorted(flat[0].keys() | flat[1].keys())
    return [key for key in keys if not INCIDENTAL.search(key) and flat[0].get(key) != flat[1].get(key)]
