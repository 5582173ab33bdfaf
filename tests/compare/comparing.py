"""Folders of runs to compare, with what training and evaluation leave in them, and `tempo-trl compare` of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.launch import cli
from tempo_trl.runs.statistics import bootstrap_interval


def evaluated(folder: Path, correct: np.ndarray, task: str = "math", words: str = "", first: int = 0) -> Path:
    """Give a run greedy answers to as many questions as `correct` has, asked in `words`, and their accuracy."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = range(first, first + len(correct))
    questions = [
        {"row_id": row_id, "source": task, "prompt_sha256": f"{words}{row_id}", "correct": [float(right)]}
        for row_id, right in zip(ids, correct, strict=True)
    ]
    (folder / f"{task}.greedy.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    result = {"task": task, "hub_id": None, "split": "test", "metric": "accuracy", "n": len(correct), "k": 1}
    result |= {"value": float(np.mean(correct)), "interval": list(bootstrap_interval(correct.astype(float)))}
    (folder / f"{task}.json").write_text(json.dumps([result]))
    return folder


def trained(folder: Path, rewards: list[float], tokens: int = 100, seconds: float = 2.0) -> Path:
    """Give a run the log of one step a reward, each of so many tokens and seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    log = [
        {"step": step, "reward": reward, "num_tokens": tokens * step, "step_time": seconds}
        for step, reward in enumerate(rewards, start=1)
    ]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    return folder


def runs_of(tmp_path: Path, *methods: str) -> list[Path]:
    return [tmp_path / "runs/qwen3-1.7b/math" / method for method in methods]


def compare(output: Path, *runs: Path, label: list[str] | None = None) -> dict:
    """What compare.json holds."""
    flags = ["--label", *label] if label else []
    assert cli.main(["compare", *map(str, runs), "-o", str(output), *flags]) == 0
    return json.loads(
        (output / "compare.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} in JSON")
    )


def differences(numbers: dict) -> list[dict]:
    """The cells that have a baseline."""
    return [cell for cell in numbers["cells"] if cell["baseline"]]
