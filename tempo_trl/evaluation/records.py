"""The files of an evaluation: what was answered, a line a question, and how far it came.

math.greedy.jsonl, math.n16.jsonl    all questions of a task, in the order of their rows, once it is finished
math.json                            its results, made from those
state/math.greedy.json               the settings; what is asked again with others is refused
state/math.greedy.jsonl              the questions answered so far, until it is finished
"""

import json
import os
from pathlib import Path

from tempo_trl.runs.files import write_atomically

STATE = "state"


class Record:
    """The questions of one task and decoding, and their answers so far."""

    def __init__(self, folder: Path, task: str, decoding: str):
        self.task, self.decoding = task, decoding
        self.path = folder / f"{task}.{decoding}.jsonl"
        self.partial = folder / STATE / self.path.name
        self.state = self.partial.with_suffix(".json")

    @property
    def is_finished(self) -> bool:
        return self.path.exists()

    @property
    def is_begun(self) -> bool:
        """Whether there is an answer: settings alone hold nobody to them."""
        return self.is_finished or (self.partial.exists() and self.partial.stat().st_size > 0)

    def read_state(self) -> dict:
        """`settings`, what must not change, and `entry`, what results repeat; empty if there was no evaluation."""
        return json.loads(self.state.read_text(encoding="utf-8")) if self.state.exists() else {}

    def begin(self, settings: dict, entry: dict) -> None:
        """Note the settings, or make sure that they are those of what is there."""
        self.require(settings)
        if not self.is_begun:
            write_atomically(self.state, json.dumps({"settings": settings, "entry": entry}, indent=2))

    def require(self, settings: dict) -> None:
        """Raise ValueError if what is there was made with other settings."""
        there = self.read_state().get("settings", {})
        if not self.is_begun:
            return
        changed = [name for name in settings if name not in there or there[name] != settings[name]]
        if changed:
            changes = "; ".join(f"{name} was {there.get(name)!r} and is {settings[name]!r}" for name in changed)
            raise ValueError(
                f"{self.path} belongs to another evaluation: {changes}. Give this one another --output, or start over "
                "with --overwrite."
            )

    def rows(self) -> list[dict]:
        """The questions answered so far; a line that was cut when the process was killed is none."""
        path = self.path if self.is_finished else self.partial
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def resume(self, per_chunk: int, total: int) -> int:
        """Number of questions that are done with; those of a chunk that was cut are dropped."""
        rows = self.rows()
        done = len(rows) if len(rows) == total else len(rows) // per_chunk * per_chunk
        write_atomically(self.partial, _lines(rows[:done]))
        return done

    def append(self, rows: list[dict]) -> None:
        """Keep the questions of a chunk, on the disk."""
        with self.partial.open("a", encoding="utf-8") as file:
            file.write(_lines(rows))
            file.flush()
            os.fsync(file.fileno())

    def finish(self, date: str) -> None:
        """All questions are answered: put them where readers look for them."""
        write_atomically(self.state, json.dumps(self.read_state() | {"date": date}, indent=2))
        write_atomically(self.path, _lines(sorted(self.rows(), key=lambda row: row["row_id"])))
        self.partial.unlink()


def _lines(rows: list[dict]) -> str:
    # ASCII only: a line separator that a model wrote must not end a line.
    return "".join(json.dumps(row) + "\n" for row in rows)


def records_of(folder: Path, task: str) -> list[Record]:
    """The records of a task, greedy first, begun or finished."""
    states = (path.name.split(".") for path in (folder / STATE).glob(f"{task}.*.json"))
    found = [Record(folder, task, parts[1]) for parts in states if parts[0] == task]
    return sorted(found, key=lambda record: (record.decoding != "greedy", len(record.decoding), record.decoding))


def remove(folder: Path, task: str) -> None:
    """Throw away the records of a task, and its results."""
    for record in records_of(folder, task):
        for path in (record.state, record.path, record.partial):
            path.unlink(missing_ok=True)
    for path in (folder / f"{task}.json", *folder.glob(f"{task}.*.jsonl")):
        path.unlink(missing_ok=True)
