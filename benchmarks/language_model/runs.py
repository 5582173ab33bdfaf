"""Train a cell, and read what it left: its numbers, without its texts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Lock

import torch

from benchmarks.language_model.arms import Cell
from benchmarks.language_model.criteria import OF_ALL
from benchmarks.language_model.study import Study
from benchmarks.provenance import machine
from benchmarks.tasks import recipe_of
from tempo_trl.data import BENCHMARKS
from tempo_trl.demo.run import KEEP_MEMORY
from tempo_trl.runs.log import training_log
from tempo_trl.runs.record import read_record

FINE_TUNING = Lock()
EVAL_ROWS = 64  # held-out answers that are sampled at a time
BIG = ("model.safetensors", "optimizer.pt")
# Of each step: name in a cell, and in TRL's log. The reward of a task with criteria is their mean, also where an arm
# is paid something else.
SERIES = {
    "reward": "reward",
    "all": "fields/all",
    "seconds": "step_time",
    "length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "td_share": "tempo/added_share",
    "shared_prefix": "tempo/shared_prefix",
    "prefix_explained": "tempo/prefix_r2",
    "flat_groups": "tempo/frac_zero_std",
    "pass": "fields/pass",
    "distinct": "fields/distinct",
}
FIELDS = "fields/"  # what every arm of a task with criteria logs


def command(study: Study, cell: Cell, folder: Path) -> list[str]:
    """The command of a cell's run."""
    arm = study.arm(cell.arm)
    fields = {
        **dict(arm.changes),
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "max_steps": cell.steps,
        "output_dir": folder,
        "save_steps": study.save_steps,
        "do_eval": is_evaluated(study, cell),
        "num_generations_eval": study.answers,
        "per_device_eval_batch_size": min(study.held_out * study.answers, EVAL_ROWS),
        "resume_from_checkpoint": "last",
    }
    if study.task in BENCHMARKS:
        fields["dataset_test_split"] = f"test[:{study.held_out}]"
    if start := study.start_of(cell.arm):
        fields["model_name_or_path"] = folder.parent / start.folder
    fields["use_cpu"] = not torch.cuda.is_available()
    fields["log_trees_steps"] = 0
    fields["skip_zero_advantages"] = "top_entropy_quantile" not in fields  # the same gradient in less time
    recipe = recipe_of(study.task, arm.recipe)
    flags = [text for key, value in fields.items() for text in (f"--{key}", *_words(value))]
    return [sys.executable, "-m", "benchmarks.language_model.training", "--config", str(recipe), *flags]


def command_of_start(study: Study, cell: Cell, folder: Path) -> list[str]:
    """The command that fine-tunes the policy that a cell starts from."""
    start, output = study.start_of(cell.arm), folder.parent
    words = study.task, start.examples, start.epochs, start.learning_rate, output / start.folder
    return [sys.executable, "-m", "benchmarks.language_model.starts", *map(str, words)]


def _words(value: object) -> list[str]:
    """A value on the command line. A tuple is several values."""
    return list(map(str, value)) if isinstance(value, tuple) else [str(value)]


def is_evaluated(study: Study, cell: Cell) -> bool:
    """Whether the trained policy answers held-out prompts: where it counts, because this takes a minute."""
    return cell.seed not in study.sweep_seeds


def train(study: Study, cell: Cell, folder: Path, threads: int, nice: int, *flags: str) -> None:
    """
    Train a cell, going on from its last checkpoint, with more `flags`. Only logs, completions and trees are kept.

    Raises:
        RuntimeError: the run failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | KEEP_MEMORY | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    with (folder / "run.log").open("a") as log:

        def run(*words: str) -> int:
            return subprocess.run(
                ("nice", "-n", str(nice), *words), stdout=log, stderr=log, env=environment
            ).returncode

        with FINE_TUNING:  # once, for whichever cell comes first
            code = run(*command_of_start(study, cell, folder)) if study.start else 0
        code = code or run(*command(study, cell, folder), *flags)
    if code or not (folder / ("eval_results.json" if is_evaluated(study, cell) else "trainer_state.json")).exists():
        raise RuntimeError(f"{cell.name} failed. Its log is {folder / 'run.log'}.")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    for name in BIG:
        (folder / name).unlink(missing_ok=True)


def numbers(study: Study, cell: Cell, folder: Path) -> dict:
    """The numbers of a finished run, all that is kept of it."""
    steps = [entry for entry in training_log(folder) if "reward" in entry]
    names = SERIES | ({"reward": f"{FIELDS}mean"} if study.has_criteria else {})
    series = {name: [entry.get(key) for entry in steps] for name, key in names.items()}
    series = {name: own for name, own in series.items() if any(value is not None for value in own)}
    record, more = read_record(folder), _of_criteria(steps) if study.has_criteria else {}
    git = record.get("git") or {}
    return {
        "arm": cell.arm,
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "steps": cell.steps,
        **series,
        **more,
        "held_out": _held_out(study, folder) if is_evaluated(study, cell) else None,
        "model": record["model"]["name"],
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "machine": machine(),
    }


def _of_criteria(steps: list[dict]) -> dict:
    """Mean of each criterion at each step."""
    own = {key for entry in steps for key in entry if key.startswith(FIELDS)} - {f"{FIELDS}{name}" for name in OF_ALL}
    return {"fields": {key.removeprefix(FIELDS): [entry.get(key) for entry in steps] for key in sorted(own)}}


def _held_out(study: Study, folder: Path) -> dict[str, float]:
    """Held-out pass rates by kind or criterion, and of all."""
    found, start = json.loads((folder / "eval_results.json").read_text()), f"eval_{study.metrics}"
    rates = {key.removeprefix(start): value for key, value in found.items() if key.startswith(start)}
    return rates if study.has_criteria else rates | {"all": found["eval_reward"]}
