"""Write a measurement: the figure, its numbers, and their provenance."""

import platform
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

import benchmarks
from benchmarks.compact_json import write_json
from benchmarks.estimators.measure import BUDGET, SEED, WARM_UP
from tempo_trl.runs.record import commit_of

DIGITS = 5  # tables show four at most


class Effort(NamedTuple):
    """The size of a measurement: batches per cell, tokens per batch, and whether it is only a quick check."""

    batches: int
    budget: int = BUDGET
    quick: bool = False


def commit() -> dict[str, Any]:
    """The current commit, and whether files differ from it."""
    return commit_of(Path(benchmarks.__file__).parent) or {"commit": "unknown", "dirty": True}


def provenance(question: str, effort: Effort, commit: dict[str, Any]) -> dict[str, Any]:
    """Provenance of the numbers: command, commit, seed, versions, machine, batches."""
    command = ["python", "-m", "benchmarks.estimators", question, *(["--quick"] if effort.quick else [])]
    return {
        "command": shlex.join(command),
        **commit,
        "seed": SEED,
        "batches": effort.batches,
        "warm_up_batches": WARM_UP,
        "tokens_a_batch": effort.budget,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        "rewards": "unscaled (scale_rewards='none'), Bernoulli draws of the completion's success probability",
    }


def caption(origin: dict[str, Any]) -> str:
    """One line under a figure."""
    commit = origin["commit"][:7] + (" with changes" if origin["dirty"] else "")
    return (
        f"{origin['command']}   commit {commit}, seed {origin['seed']}, {origin['batches']} batches of at most "
        f"{origin['tokens_a_batch']:,} tokens, {origin['machine']}; bars: ±2 standard errors"
    )


def write(folder: Path, question: str, origin: dict[str, Any], records: list[dict], figure: Figure) -> list[Path]:
    """`estimators_<question>.png` and `.json` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    png, numbers = (folder / f"estimators_{question}.{kind}" for kind in ("png", "json"))
    figure.text(0.01, 0.005, caption(origin), fontsize=6.5, color="#555555")
    figure.savefig(png, dpi=110)
    write_json(numbers, {"provenance": origin, "records": records}, DIGITS)
    return [png, numbers]
