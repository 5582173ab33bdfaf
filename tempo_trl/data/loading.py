"""Load a benchmark's rows from the Hub or a local file, and convert them to TRL prompts."""

import glob
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tempo_trl.data.benchmarks import BENCHMARKS, Benchmark
from tempo_trl.data.prompts import messages
from tempo_trl.rewards.boxed import gold_answer
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

WORDS = ("question", "stem", "system_prompt", "example")  # of a row, which its prompt has


def load_prompts(
    name: str,
    split: str | None = None,
    path: str | os.PathLike | None = None,
    system_prompt: str | None = None,
    instruction: str | None = None,
    style: str = "boxed",
) -> "Dataset":
    r"""Load a benchmark as a prompt dataset for TRL, for the reward of its domain.

    Rows without an answer to compare with (null, for example) are kept, so that row ids match the Hub's. They are
    listed in a warning, and their reward is None.

    Args:
        name: A key of [`BENCHMARKS`].
        split: Split on the Hub, by default the evaluation split. Slices such as `train[:100]` count from the start of
            the slice, and in MMLU-Medical are taken of each subject.
        path: A local JSON, JSONL or parquet file with the Hub's columns, read instead of the Hub's `split`.
        system_prompt: System message of each prompt. Defaults to the benchmark's own or the style's; an empty text
            removes it.
        instruction: Last part of the user's message. Defaults to the style's; an empty text removes it. It must ask
            for the format that the reward reads, such as a box.
        style: Wording and layout of the prompt: `boxed`, or `authors-code` ([`~tempo_trl.data.prompts`]).

    Returns:
        Dataset with `prompt` (messages), `solution` (text with a `\boxed{}`, a bare answer, or the letter of an
        option; empty without an answer), `source` (`name`), `row_id` (int, index of the row in the loaded data), for
        multiple choice `options` (list of texts, A first), and the benchmark's own columns (`level`, `type`,
        `subject`, `url`, `truth`, `calls`).

    Raises:
        ValueError: `name`, `style` or a split is unknown, `path` cannot be read, columns or all rows are missing, a
            cell has an unexpected value, or MedMCQA's answers count from 1.
        FileNotFoundError: `path` does not exist.
    """
    from datasets import Dataset  # importing it takes a second, which would slow down `--help`

    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown, expected one of: {', '.join(BENCHMARKS)}.")
    benchmark, words = BENCHMARKS[name], {"system_prompt": system_prompt, "instruction": instruction, "style": style}
    rows = _own_rows(benchmark, split or benchmark.eval_split) if path is None else _file_rows(path)
    origin = origin_of(benchmark) if path is None else os.fspath(path)
    prompts = [prompt_row(row, row_id, benchmark, origin, **words) for row_id, row in enumerate(rows)]
    own = [prompt for prompt in prompts if prompt is not None]
    if not own:
        raise ValueError(f"{origin} has no rows of {benchmark.name}. Use another file or split.")
    dataset = Dataset.from_list(own)  # not `map`: it casts a column to the type that it has in the file
    if ungradable := [row["row_id"] for row in own if not _is_gradable(benchmark.domain, row["solution"])]:
        what = "have no answer to compare with, so their reward is None"
        logger.warning("%d rows of %s %s: %s", len(ungradable), benchmark.name, what, ungradable)
    return dataset


def prompt_row(
    row: dict, row_id: int, benchmark: Benchmark, origin: str | None = None, **words: str | None
) -> dict | None:
    """A row of the Hub as a row for TRL; None if it does not belong to the benchmark.

    Args:
        row, row_id: The row, and its index in the loaded data.
        benchmark: The benchmark.
        origin: Where it comes from, for error messages: the name of a file, by default the Hub's.
        **words: Arguments of [`~tempo_trl.data.prompts.messages`].

    Raises:
        ValueError: a column is missing, or a cell has an unexpected value. An answer may be null.
    """
    place = f"row {row_id} (the first is 0) of {benchmark.name} in {origin or origin_of(benchmark)}"
    try:
        known = benchmark.to_row(row)
    except KeyError as error:
        raise ValueError(f"{place}: got columns {', '.join(row)}, expected {error} as well. Rename one.") from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    if known is None:
        return None
    columns = {name: value for name, value in known.items() if name not in WORDS}
    asked = messages(known, benchmark.domain, **words)
    return {"prompt": asked, "source": benchmark.name, "row_id": row_id, **columns}


def origin_of(benchmark: Benchmark) -> str:
    """Where the rows of a benchmark come from, for messages: its id on the Hub, if they are not generated."""
    return benchmark.hub_id or "the generated rows"


def _is_gradable(domain: str, solution: str) -> bool:
    """Whether a row has an answer to compare with; without one its reward is always None."""
    if domain not in ("math", "choice"):
        return True  # the truth is in the instruction
    return 0 < len(gold_answer(solution) if domain == "math" else solution) <= MAX_ANSWER_CHARS


def _own_rows(benchmark: Benchmark, split: str) -> "Dataset":
    """Rows of a split, from the Hub or generated."""
    from datasets import Dataset, ReadInstruction, concatenate_datasets, load_dataset

    for part in split.split("+"):
        if part.partition("[")[0] not in benchmark.splits:
            known = " or ".join(benchmark.splits)
            raise ValueError(f"{benchmark.name} has no split {part!r} with answers. Use {known}, or a slice of it.")
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

    builder = "parquet" if Path(path).suffix == ".parquet" else "json"
    try:
        # A single file is always called train. Unescaped, `[` in its path would be the beginning of a pattern.
        return load_dataset(builder, data_files=glob.escape(os.fspath(path)), split="train")
    except (DatasetGenerationError, StopIteration, ValueError) as error:
        cause = str(error.__cause__ or error) or "it has no rows"  # StopIteration: an empty file
        raise ValueError(f"{path} cannot be read as rows in {builder}: {cause.rstrip('.')}. Correct it.") from error
