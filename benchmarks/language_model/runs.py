"""Train a cell, and read what it left: its numbers, without its texts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.language_model.arms import LONG_STEPS, Cell
from benchmarks.language_model.decisive import decisive_shares
from benchmarks.language_model.study import Study
from tempo_trl.data.instructions import KINDS, generated_rows
from tempo_trl.demo.orders import KEEP_MEMORY
from tempo_trl.report.group import recorded_groups
from tempo_trl.report.value_errors import ValueErrors
from tempo_trl.rewards.instruction_checks import lower_words
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_path
from tempo_trl.runs.record import read_record
from tempo_trl.runs.trees import recorded_steps

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
    "prose": "instructions/prose",
    "td_share": "tempo/added_share",
    "shared_prefix": "tempo/shared_prefix",
    "prefix_explained": "tempo/prefix_r2",
    "flat_groups": "tempo/frac_zero_std",
    "signal_share": "tempo/signal_share",
}
FIELDS = "fields/"  # what every arm of a task with criteria logs: the mean of each, `mean` and `all`


def command(study: Study, cell: Cell, folder: Path) -> list[str]:
    """The command of a cell's run."""
    arm = (study.arms | study.controls)[cell.arm]
    fields = {
        **dict(arm.changes),
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "max_steps": cell.steps,
        "output_dir": folder,
        "save_steps": 25 if cell.steps == LONG_STEPS else study.save_steps,
        "do_eval": is_evaluated(study, cell),
        "num_generations_eval": 1,
        "per_device_eval_batch_size": study.held_out,
        "dataset_test_split": f"test[:{study.held_out}]",
        "resume_from_checkpoint": "last",
    }
    fields |= {"log_trees_steps": 0 if study.has_criteria else 1, "log_trees_prompts": 8, "log_signal_share": True}
    fields |= {"skip_zero_advantages": "top_entropy_quantile" not in fields}  # the same gradient in less time
    recipe = recipe_path(f"smollm2-135m/{study.task}/{arm.recipe}")
    flags = [text for key, value in fields.items() for text in (f"--{key}", *_words(value))]
    return [sys.executable, "-m", "benchmarks.language_model.training", "--config", str(recipe), *flags]


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
    words = ["nice", "-n", str(nice), *command(study, cell, folder), *flags]
    with (folder / "run.log").open("a") as log:
        code = subprocess.run(words, stdout=log, stderr=log, env=environment).returncode
    if code or not (folder / ("eval_results.json" if is_evaluated(study, cell) else "train_results.json")).exists():
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
    record, more = read_record(folder), _of_criteria(steps) if study.has_criteria else _of_instructions(folder)
    return {
        "arm": cell.arm,
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "steps": cell.steps,
        **series,
        **more,
        "held_out": _held_out(study, folder) if is_evaluated(study, cell) else None,
        "model": record["model"]["name"],
        "commit": (record.get("git") or {}).get("commit"),
    }


def _of_criteria(steps: list[dict]) -> dict:
    """Mean of each criterion at each step."""
    own = {key for entry in steps for key in entry if key.startswith(FIELDS)} - {f"{FIELDS}mean", f"{FIELDS}all"}
    return {"fields": {key.removeprefix(FIELDS): [entry.get(key) for entry in steps] for key in sorted(own)}}


def _of_instructions(folder: Path) -> dict:
    """What the tables of completions and the recorded trees say."""
    tables = _tables(folder)
    words = [_distinct_words(table) for table in tables]
    return {"distinct": words, "by_kind": _by_kind(tables), **_of_groups(folder)}


def _held_out(study: Study, folder: Path) -> dict[str, float]:
    """Held-out pass rates by kind or criterion, and of all."""
    found = json.loads((folder / "eval_results.json").read_text())
    if study.has_criteria:
        start = f"eval_{FIELDS}"
        return {key.removeprefix(start): value for key, value in found.items() if key.startswith(start)}
    return {kind: found[f"eval_instructions/{kind}"] for kind in KINDS} | {"all": found["eval_reward"]}


def _tables(folder: Path) -> list[pd.DataFrame]:
    """The completions of each step but the last, whose table may have those of the evaluation in place of its own."""
    return [pd.read_parquet(file) for file in sorted((folder / "completions").glob("completions_*.parquet"))[:-1]]


def _distinct_words(table: pd.DataFrame) -> float:
    """Share of a step's words that are distinct. A policy that always writes the same has a low one."""
    words = [word for messages in table["completion"] for word in lower_words(messages[-1]["content"])]
    return len(set(words)) / max(len(words), 1)


def _by_kind(tables: list[pd.DataFrame]) -> dict[str, float]:
    """Mean reward over a run's completions of each kind of instruction."""
    known = {row["instruction"]: row["kind"] for row in generated_rows("train")}
    together = pd.concat(tables)
    kinds = together["prompt"].map(lambda messages: known[messages[-1]["content"]])
    return together["instruction_reward"].groupby(kinds).mean().to_dict()


def _of_groups(folder: Path) -> dict:
    """Share of negative credit on decisive tokens, and the errors of values, over the recorded groups."""
    errors, sums = ValueErrors(), []
    for step in recorded_steps(folder):
        groups = recorded_groups(folder, step)
        errors.add(groups)
        sums.append(decisive_shares(groups))
    if not sums:
        return {"decisive": None, "value_error": None}
    total = {name: np.sum([own[name] for own in sums], axis=0) for name in sums[0]}
    shares = {name: float(own[0] / own[1]) if own[1] else None for name, own in total.items()}
    return {"decisive": shares, "value_error": errors.ratio()}
