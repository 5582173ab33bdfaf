"""Datasets in TRL's form: a `prompt`, and the columns that the rewards read."""

import os
from typing import TYPE_CHECKING

from tempo_trl.data.amc23 import AMC23
from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.gsm_hard import GSM_HARD
from tempo_trl.data.leaks import check_leaks, leaked_rows
from tempo_trl.data.loading import load
from tempo_trl.data.math_dataset import MATH
from tempo_trl.data.medmcqa import MEDMCQA
from tempo_trl.data.medqa import MEDQA, MEDQA_5OPTIONS
from tempo_trl.data.mmlu_medical import MMLU_MEDICAL

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["BENCHMARKS", "Benchmark", "check_leaks", "leaked_rows", "load_prompts"]

BENCHMARKS = {
    benchmark.name: benchmark for benchmark in (MATH, GSM_HARD, AMC23, MEDQA, MEDQA_5OPTIONS, MEDMCQA, MMLU_MEDICAL)
}


def load_prompts(
    name: str,
    split: str | None = None,
    path: str | os.PathLike | None = None,
    system_prompt: str | None = None,
    instruction: str | None = None,
    style: str = "boxed",
) -> "Dataset":
    r"""A benchmark as a prompt dataset for TRL, to be rewarded with `math_reward` or `choice_reward`, by its domain.

    A row without an answer that can be compared, null among them, is kept, so that row ids agree with the Hub's, and
    named in a warning: its reward is None.

    Args:
        name: A key of [`BENCHMARKS`].
        split: Split on the Hub, by default the one that is evaluated; slices such as `train[:100]` count from their
            own start, and in MMLU-Medical are taken of each subject.
        path: A local JSON, JSONL or parquet file with the Hub's columns, read instead of the Hub's `split`.
        system_prompt: First message of each prompt; the style's if None, none if empty.
        instruction: Closes the user's message; the style's if None, nothing if empty. It has to ask for a box, or for
            what else the reward reads.
        style: Words and layout of the prompt: `boxed`, or `authors-code` ([`~tempo_trl.data.prompts`]).

    Returns:
        Dataset with `prompt` (messages), `solution` (text with a `\boxed{}`, a bare answer, or the letter of a choice;
        empty without an answer), `source` (`name`), `row_id` (int, index of the row in what was loaded), in a choice
        `options` (list of texts, A first), and the benchmark's own columns (`level`, `type`, `subject`, `url`).

    Raises:
        ValueError: `name`, `style` or a split is unknown, `path` has another ending or cannot be read, columns or all
            rows are missing, a cell holds something else than it should, or MedMCQA's answers count from 1.
        FileNotFoundError: `path` does not exist.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown, expected one of: {', '.join(BENCHMARKS)}.")
    return load(BENCHMARKS[name], split, path, system_prompt, instruction, style)
