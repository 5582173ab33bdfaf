"""Benchmarks as datasets in TRL's format: a `prompt`, and the columns that the reward functions use."""

import os
from typing import TYPE_CHECKING

from tempo_trl.data.benchmarks import BENCHMARKS, Benchmark
from tempo_trl.data.leaks import check_leaks, leaked_rows
from tempo_trl.data.loading import load

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["BENCHMARKS", "Benchmark", "check_leaks", "leaked_rows", "load_prompts"]


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
        ValueError: `name`, `style` or a split is unknown, `path` cannot be read, columns or all rows
            are missing, a cell has an unexpected value, or MedMCQA's answers count from 1.
        FileNotFoundError: `path` does not exist.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown, expected one of: {', '.join(BENCHMARKS)}.")
    words = {"system_prompt": system_prompt, "instruction": instruction, "style": style}
    return load(BENCHMARKS[name], split, path, **words)
