"""Load a benchmark's rows from the Hub or a local file, and convert them to TRL prompts."""

import contextlib
import glob
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tempo_trl.data.benchmarks import Benchmark
from tempo_trl.data.prompts import LETTERS, messages
from tempo_trl.rewards.boxed import gold_answer
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
WORDS = ("question", "stem", "system_prompt", "example")  # of a row, which its prompt has
_FORMATS = {"json": "JSON objects, one per line or all in a list", "parquet": "a parquet file of rows"}


def load(benchmark: Benchmark, split: str | None, path: str | os.PathLike | None, **words: str | None) -> "Dataset":
    """The prompts of a benchmark; see [`~tempo_trl.data.load_prompts`]."""
    from datasets import Dataset  # importing it takes a second, which would slow down `--help`

    rows = _own_rows(benchmark, split or benchmark.eval_split) if path is None else _file_rows(path)
    _require_columns(benchmark, rows.column_names)
    origin = origin_of(benchmark) if path is None else os.fspath(path)
    row_ids = kept_rows(rows, benchmark, origin)
    kept = zip(rows.select(row_ids), row_ids, strict=True)
    # Not `map`: it casts a column to the type that the column of this name has in the file.
    dataset = Dataset.from_list([prompt_row(row, row_id, benchmark, origin, **words) for row, row_id in kept])
    _warn(benchmark, ungradable_rows(dataset, benchmark), "have no answer to compare with, so their reward is None")
    _warn(benchmark, ambiguous_rows(dataset), "have the text of the correct option twice, so its letter is graded")
    return dataset


def kept_rows(rows: "Dataset", benchmark: Benchmark, origin: str) -> Sequence[int]:
    """Row ids of the rows that belong to the benchmark. Raises ValueError if there are none."""
    row_ids = range(len(rows))
    if benchmark.keep is not None:
        row_ids = [row_id for row_id, row in enumerate(rows) if _keeps(row, row_id, benchmark, origin)]
    if not row_ids:
        raise ValueError(
            f"{origin} has no rows of {benchmark.name}, expected at least one. Use another file or split."
        )
    return row_ids


def _keeps(row: dict, row_id: int, benchmark: Benchmark, origin: str) -> bool:
    with named_row(row_id, benchmark, origin):
        return benchmark.keep(row)


def prompt_row(row: dict, row_id: int, benchmark: Benchmark, origin: str | None = None, **words: str | None) -> dict:
    """A row of the Hub as a row for TRL.

    Args:
        row, row_id: The row, and its index in the loaded data.
        benchmark: The benchmark that it belongs to.
        origin: Where it comes from, for error messages: the name of a file, by default the Hub's.
        **words: Arguments of [`~tempo_trl.data.prompts.messages`].

    Raises:
        ValueError: a cell has an unexpected value. An answer may be null.
    """
    with named_row(row_id, benchmark, origin or origin_of(benchmark)):
        row = benchmark.to_row(row)
    columns = {name: value for name, value in row.items() if name not in WORDS}
    return {"prompt": messages(row, benchmark.domain, **words), "source": benchmark.name, "row_id": row_id, **columns}


def origin_of(benchmark: Benchmark) -> str:
    """Where the rows of a benchmark come from, for messages: its id on the Hub, if they are not generated."""
    return benchmark.hub_id or "the generated rows"


@contextlib.contextmanager
def named_row(row_id: int, benchmark: Benchmark, origin: str) -> Iterator[None]:
    """Add the row to the message of a ValueError raised inside the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"row {row_id} (the first is 0) of {benchmark.name} in {origin}: {error}") from error


def ungradable_rows(dataset: "Dataset", benchmark: Benchmark) -> list[int]:
    """Row ids of the prompts that have no answer to compare with, so that their reward is always None."""
    pairs = zip(dataset["row_id"], dataset["solution"], strict=True)
    return [row_id for row_id, solution in pairs if not _is_gradable(benchmark.domain, solution)]


def ambiguous_rows(dataset: "Dataset") -> list[int]:
    """Row ids of multiple-choice questions in which another option has the text of the correct one."""
    if "options" not in dataset.column_names:
        return []
    rows = zip(dataset["row_id"], dataset["options"], dataset["solution"], strict=True)
    return [row_id for row_id, options, letter in rows if letter and options.count(options[LETTERS.index(letter)]) > 1]


def _is_gradable(domain: str, solution: str) -> bool:
    if domain not in ("math", "choice"):
        return True  # the truth is in the instruction
    return 0 < len(gold_answer(solution) if domain == "math" else solution) <= MAX_ANSWER_CHARS


def _own_rows(benchmark: Benchmark, split: str) -> "Dataset":
    """Rows of a split, from the Hub or generated."""
    from datasets import Dataset, ReadInstruction, concatenate_datasets, load_dataset

    unknown = [name for name in (part.partition("[")[0] for part in split.split("+")) if name not in benchmark.splits]
    if unknown:
        raise ValueError(
            f"{benchmark.name} has no split {unknown[0]!r} with answers. Use {' or '.join(benchmark.splits)}, or a "
            f"slice such as {benchmark.eval_split}[:100]."
        )
    if benchmark.generate is not None:
        rows = {name: benchmark.generate(name) for name in benchmark.splits}
        parts = ReadInstruction.from_spec(split).to_absolute({name: len(own) for name, own in rows.items()})
        return Dataset.from_list([row for part in parts for row in rows[part.splitname][part.from_ : part.to]])
    if not benchmark.configs:
        return load_dataset(benchmark.hub_id, split=split)
    return concatenate_datasets([load_dataset(benchmark.hub_id, name, split=split) for name in benchmark.configs])


def _file_rows(path: str | os.PathLike) -> "Dataset":
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    builder = _BUILDERS.get(Path(path).suffix)
    if builder is None:
        raise ValueError(
            f"{path} has the suffix {Path(path).suffix!r}, expected one of {', '.join(_BUILDERS)}. Convert the file."
        )
    try:
        # A single file is always called train. Unescaped, `[` in its path would be the beginning of a pattern.
        return load_dataset(builder, data_files=glob.escape(os.fspath(path)), split="train")
    except (DatasetGenerationError, StopIteration, ValueError) as error:  # StopIteration: an empty file
        raise ValueError(f"{path} {_fault(error)}. Expected {_FORMATS[builder]}.") from error


def _fault(error: Exception) -> str:
    """What is wrong with a file, from the error of reading it, which is obscure for a file without rows."""
    if isinstance(error, StopIteration) or "corresponds to no data" in str(error):
        return "has no rows"
    return f"cannot be read: {error.__cause__ or error}".rstrip(".")


def _require_columns(benchmark: Benchmark, columns: list[str]) -> None:
    missing = [name for name in benchmark.columns if name not in columns]
    if missing:
        raise ValueError(
            f"the rows of {benchmark.name} lack {', '.join(missing)}: got columns {', '.join(columns)}, expected "
            f"{', '.join(benchmark.columns)}. Rename the file's columns, or load {origin_of(benchmark)}."
        )


def _warn(benchmark: Benchmark, row_ids: list[int], what: str) -> None:
    if row_ids:
        logger.warning("%d rows of %s %s: %s", len(row_ids), benchmark.name, what, row_ids)
