"""The questions of an evaluation, and the functions that our task files for lm-eval call.

As in training, prompts come from [`~tempo_trl.data.load_prompts`] and grades from the reward functions.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.data.loading import origin_of
from tempo_trl.evaluation.grading import grade

if TYPE_CHECKING:
    from datasets import Dataset
    from lm_eval.api.model import TemplateLM

    from tempo_trl.evaluation.settings import Settings

SUFFIXES = (".jsonl", ".json", ".parquet")


class Question(NamedTuple):
    """A row of a task, and the text for the model: its messages in the chat template."""

    row: dict
    prompt: str

    @property
    def sha256(self) -> str:
        """Hash of the messages without the chat template, so that it is the same for all models and dates."""
        return hashlib.sha256(json.dumps(self.row["prompt"], sort_keys=True).encode()).hexdigest()


def questions(benchmark: str, lm: "TemplateLM", settings: "Settings") -> list[Question]:
    """The first `settings.limit` rows of a benchmark, each with its prompt."""
    words = settings.prompt_style, settings.system_prompt, settings.instruction
    options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": settings.thinking}
    rows = _rows(benchmark, settings.data_dir, *words).to_list()[: settings.limit]
    return [Question(row, lm.tokenizer.apply_chat_template(row["prompt"], **options)) for row in rows]


def dataset(
    benchmark: str,
    data_dir: str | None = None,
    prompt_style: str = "boxed",
    system_prompt: str | None = None,
    instruction: str | None = None,
    **others,
) -> dict[str, "Dataset"]:
    """The rows of a task file (`custom_dataset`). Its arguments come from lm-eval's `--metadata`.

    Args:
        benchmark: A key of [`~tempo_trl.data.BENCHMARKS`], from the task file.
        data_dir: Folder of local rows, `math.jsonl`; None for the Hub's rows.
        prompt_style, system_prompt, instruction: As in [`~tempo_trl.data.load_prompts`].
        **others: Other arguments of lm-eval, such as those of its model; ignored.

    Returns:
        `{"test": rows}`: the rows of `load_prompts`, with the prompt split into `system` (possibly empty) and `user`.
    """
    rows = _rows(benchmark, data_dir, prompt_style, system_prompt, instruction)
    prompts = rows["prompt"][:]
    system = [messages[0]["content"] if messages[0]["role"] == "system" else "" for messages in prompts]
    user = [messages[-1]["content"] for messages in prompts]
    return {"test": rows.add_column("system", system).add_column("user", user)}


def accuracy(doc: dict, results: list[str]) -> dict[str, float]:
    """The grade of the first answer to a row (`process_results`). An answer that cannot be graded counts as wrong."""
    return {"accuracy": grade([doc], [results[:1]]).correct[0][0] or 0.0}


def _rows(
    benchmark: str, data_dir: str | None, prompt_style: str, system_prompt: str | None, instruction: str | None
) -> "Dataset":
    path = _local_rows(benchmark, data_dir) if data_dir else None
    return load_prompts(benchmark, None, path, system_prompt, instruction, prompt_style)


def _local_rows(benchmark: str, data_dir: str) -> Path:
    """The file of a benchmark in a folder of local rows."""
    paths = [Path(data_dir).expanduser() / f"{benchmark}{suffix}" for suffix in SUFFIXES]
    found = [path for path in paths if path.is_file()]
    if len(found) != 1:
        got = " and ".join(path.name for path in found) or "none of them"
        raise FileNotFoundError(
            f"{data_dir} has {got}, expected exactly one of {', '.join(path.name for path in paths)}. Add a file with "
            f"the columns of {origin_of(BENCHMARKS[benchmark])}, or keep one."
        )
    return found[0]
