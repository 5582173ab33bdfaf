"""The files of an evaluation: answers with one line per question, results, and progress.

math.greedy.jsonl, math.n16.jsonl    all questions of a task, in the order of their rows, once it is finished
math.json                            its results, computed from those
state/math.greedy.json               the settings, copied to the results; resuming with others is an error
state/math.greedy.jsonl              the questions answered so far, until the task is finished
"""

import json
import os
from pathlib import Path

from tempo_trl.runs.files import write_atomically

STATE = "state"
MAY_CHANGE = ("model", "tempo_trl", "lm_eval")  # the name of the same weights, and versions


class Record:
    """The answered questions of one task and decoding."""

    def __init__(self, folder: Path, task: str, decoding: str):
        self.task, self.decoding = task, decoding
        self.path = folder / f"{task}.{decoding}.jsonl"
        self.partial = folder / STATE / self.path.name
        self.state = self.partial.with_suffix(".json")

    @property
    def is_finished(self) -> bool:
        return self.path.exists()

    def read_state(self) -> dict:
        """The settings, and once it is finished its date; empty without an evaluation."""
        return json.loads(self.state.read_text(encoding="utf-8")) if self.state.exists() else {}

    def begin(self, settings: dict) -> None:
        """Save the settings, or check that they are those of the existing answers."""
        self.require(settings)
        if not self.rows():
            write_atomically(self.state, json.dumps(settings, indent=2))

    def require(self, settings: dict) -> None:
        """Raise ValueError if there are answers that were generated with other settings."""
        there = self.read_state() if self.rows() else settings
        changed = [name for name in settings if name not in MAY_CHANGE and there.get(name) != settings[name]]
        if changed:
            changes = "; ".join(f"{name} was {there.get(name)!r} and is {settings[name]!r}" for name in changed)
            raise ValueError(
                f"{self.path} belongs to another evaluation: {changes}. Use another --output, or remove that folder."
            )

    def rows(self) -> list[dict]:
        """The questions answered so far, without a line that was truncated when the process was killed.

        Once each: a second process with the same command answers questions again, with the same seeds.
        """
        path = self.path if self.is_finished else self.partial
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return list({row["row_id"]: row for row in rows}.values())

    def resume(self, per_chunk: int, total: int) -> int:
        """Number of answered questions, after dropping those of an incomplete chunk."""
        rows = self.rows()
        done = len(rows) if len(rows) == total else len(rows) // per_chunk * per_chunk
        write_atomically(self.partial, _lines(rows[:done]))
        return done

    def append(self, rows: list[dict]) -> None:
        """Append the questions of a chunk to the file."""
        with self.partial.open("a", encoding="utf-8") as file:
            file.write(_lines(rows))
            file.flush()
            os.fsync(file.fileno())

    def finish(self, date: str) -> None:
        """Write the final file after all questions are answered."""
        write_atomically(self.state, json.dumps(self.read_state() | {"date": date}, indent=2))
        write_atomically(self.path, _lines(sorted(self.rows(), key=lambda row: row["row_id"])))
        self.partial.unlink(missing_ok=True)


def _lines(rows: list[dict]) -> str:
    # ASCII only, so that a line separator in a model's answer does not end a line.
    return "".join(json.dumps(row) + "\n" for row in rows)


def records_of(folder: Path, task: str) -> list[Record]:
    """The records of a task, begun or finished, greedy first."""
    states = sorted((folder / STATE).glob(f"{task}.*.json"))
    return [Record(folder, task, path.name.split(".")[1]) for path in states]
