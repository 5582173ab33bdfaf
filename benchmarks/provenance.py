"""How numbers came about: the commit, the machine, and the line under a figure."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from tempo_trl.runs.record import commit_of


def commit() -> dict[str, Any]:
    """The current commit, and whether files differ from it."""
    return commit_of(Path(__file__).parent) or {"commit": "unknown", "dirty": True}


def machine() -> str:
    """Where runs ran."""
    return f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


def caption(origin: dict[str, Any]) -> str:
    """Command, commits, seeds and machine in one line under a figure."""
    commits = ", ".join(commit[:7] for commit in origin["commits_of_runs"])
    seeds = origin["seeds"][0] if len(origin["seeds"]) == 1 else f"{origin['seeds'][0]}-{origin['seeds'][-1]}"
    return f"{origin['command']}   runs at commit {commits or 'unknown'}, seeds {seeds}, {origin['machine']}"
