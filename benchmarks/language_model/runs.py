"""Train a cell, and read what it left: its numbers, without its texts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.language_model.arms import ARMS, BASELINE, CONTROLS, LONG_STEPS, SEEDS, STEPS, SWEEP_SEEDS, Cell
from tempo_trl.data.instructions import KINDS, generated_rows
from tempo_trl.demo.decisive import decisive_shares
from tempo_trl.report.group import recorded_groups
from tempo_trl.report.value_errors import ValueErrors
from tempo_trl.rewards.instruction_checks import lower_words
from tempo_trl.runs.log import training_log
from tempo_trl.runs.recipes import recipe_path
from tempo_trl.runs.record import read_record
from tempo_trl.runs.trees import recorded_steps

HELD_OUT = 240  # instructions in one batch, so that TRL's mean over batches is that of all
BIG = ("model.safetensors", "optimizer.pt")
KEPT = BASELINE, SEEDS[0], STEPS  # the run whose weights are kept, for `truth --policy FOLDER`
# Of each step: name in a cell, and in TRL's log.
SERIES = {
    "reward": "reward",
    "seconds": "step_time",
    "length": "completions/mean_length",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "prose": "instructions/prose",
    "td_share": "tempo/td_share",
    "shared_prefix": "tempo/shared_prefix",
    "signal_share": "tempo/signal_share",
    "lambda": "hidden/lambda",
    "hidden_explained": "hidden/explained",
    "hidden_seconds": "hidden/seconds",
}


def command(cell: Cell, folder: Path) -> list[str]:
    """The command of a cell's run."""
    arm = (ARMS | CONTROLS)[cell.arm]
    fields = {
        **dict(arm.changes),
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "max_steps": cell.steps,
        "output_dir": folder,
        "save_steps": 25 if cell.steps == LONG_STEPS else 5,
        "do_eval": is_evaluated(cell),
        "num_generations_eval": 1,
        "per_device_eval_batch_size": HELD_OUT,
        "resume_from_checkpoint": "last",
    }
    fields |= {"log_trees_steps": 1, "log_trees_prompts": 8, "log_signal_share": True}
    fields |= {"skip_zero_advantages": "top_entropy_quantile" not in fields}  # the same gradient in less time
    flags = [text for key, value in fields.items() for text in (f"--{key}", str(value))]
    recipe = recipe_path(f"smollm2-135m/instructions/{arm.recipe}")
    return [sys.executable, "-m", "benchmarks.language_model.training", "--config", str(recipe), *flags]


def is_evaluated(cell: Cell) -> bool:
    """Whether the trained policy answers held-out instructions: where it counts, because this takes a minute."""
    return cell.seed not in SWEEP_SEEDS


def train(cell: Cell, folder: Path, threads: int) -> None:
    """
    Train a cell, going on from its last checkpoint. Only logs, completions and trees are kept.

    Raises:
        RuntimeError: the run failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    with (folder / "run.log").open("a") as log:
        code = subprocess.run(command(cell, folder), stdout=log, stderr=log, env=environment).returncode
    if code or not (folder / ("eval_results.json" if is_evaluated(cell) else "train_results.json")).exists():
        raise RuntimeError(f"{cell.name} failed. Its log is {folder / 'run.log'}.")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    for name in BIG:
        if name != BIG[0] or (cell.arm, cell.seed, cell.steps) != KEPT:
            (folder / name).unlink(missing_ok=True)


def numbers(cell: Cell, folder: Path) -> dict:
    """The numbers of a finished run, all that is kept of it."""
    steps = [entry for entry in training_log(folder) if "reward" in entry]
    series = {name: [entry.get(key) for entry in steps] for name, key in SERIES.items()}
    series = {name: own for name, own in series.items() if any(value is not None for value in own)}
    record, tables = read_record(folder), _tables(folder)
    return {
        "arm": cell.arm,
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "steps": cell.steps,
        **series,
        "distinct": [_distinct_words(table) for table in tables],
        "by_kind": _by_kind(tables),
        "held_out": _held_out(folder) if is_evaluated(cell) else None,
        **_of_groups(folder),
        "model": record["model"]["name"],
        "commit": (record.get("git") or {}).get("commit"),
    }


def _held_out(folder: Path) -> dict[str, float]:
    """Held-out pass rates by kind, and of all."""
    found = json.loads((folder / "eval_results.json").read_text())
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
        return {"decisive": None, "value_errors": None}
    total = {name: np.sum([own[name] for own in sums], axis=0) for name in sums[0]}
    shares = {name: float(own[0] / own[1]) if own[1] else None for name, own in total.items()}
    return {"decisive": shares, "value_errors": errors.ratios()}
