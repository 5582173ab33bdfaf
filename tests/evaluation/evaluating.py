"""What the tests of the evaluation share: local rows of every benchmark, and a model that says what it is told to."""

import json
from collections.abc import Callable
from pathlib import Path

from ..data.rows import HUB_ROWS, write_file

SIX = ["math", "gsm_hard", "amc23", "medqa", "medmcqa", "mmlu_medical"]
# top_k and a fifth of the tokens that end a text make the tiny model's samples short, and repeat now and then.
SHORT = {"max_tokens": 24, "top_k": 3}


def write_rows(folder: Path, repeats: int = 1) -> str:
    """A file of rows a benchmark; the name of their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in HUB_ROWS.items():
        write_file(folder / f"{name}.jsonl", rows * repeats)
    return str(folder)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def everything_but_dates(folder: Path) -> dict[str, str | list]:
    """Content of the files of an evaluation, and their names."""
    answers = {path.name: path.read_text() for path in sorted(folder.glob("*.jsonl"))}
    results = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    for entry in (entry for entries in results.values() for entry in entries):
        entry.pop("date")
    return answers | results


def let_the_model_say(monkeypatch, say: Callable[[dict, int], str]) -> None:
    """Answers of lm-eval's hf model are `say(row, sample)`, without generating."""
    monkeypatch.setattr(
        "lm_eval.models.huggingface.HFLM.generate_until",
        lambda lm, requests, disable_tqdm: [say(request.doc, request.idx) for request in requests],
    )


def right(row: dict) -> str:
    """A right answer, in a box."""
    gold = row["solution"]
    return gold if r"\boxed" in gold else rf"So it is $\boxed{{{gold}}}$."
