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
from tempo_trl.evaluation.settings import WORDS, Settings

if TYPE_CHECKING:
    from datasets import Dataset
    from lm_eval.api.model import TemplateLM


class Question(NamedTuple):
    """A row of a task, and the text for the model: its messages in the chat template."""

    row: dict
    prompt: str

    @property
    def sha256(self) -> str:
        """Hash of the messages without the chat template, so that it is the same for all models and dates."""
        return hashlib.sha256(json.dumps(self.row["prompt"], sort_keys=True).encode()).hexdigest()


def questions(benchmark: str, lm: "TemplateLM", settings: Settings) -> list[Question]:
    """The first `settings.limit` rows of a benchmark, each with its prompt."""
    thinking = {} if settings.thinking is None else {"enable_thinking": settings.thinking}
    options = {"tokenize": False, "add_generation_prompt": True, **thinking}
    rows = _rows(benchmark, settings).to_list()[: settings.limit]
    return [Question(row, lm.tokenizer.apply_chat_template(row["prompt"], **options)) for row in rows]


def dataset(benchmark: str, **metadata: str) -> dict[str, "Dataset"]:
    """The rows of a task file (`custom_dataset`).

    Args:
        benchmark: A key of [`~tempo_trl.data.BENCHMARKS`], from the task file.
        **metadata: lm-eval's `--metadata`. Of its keys `data_dir`, `prompt_style`, `system_prompt` and `instruction`
            are read as in [`~tempo_trl.evaluation.settings.Settings`].

    Returns:
        `{"test": rows}`: the rows of `load_prompts`, with the prompt split into `system` (possibly empty) and `user`.
    """
    known = {name: metadata[name] for name in (*WORDS, "data_dir") if name in metadata}
    rows = _rows(benchmark, Settings(model="", **known))
    prompts = rows["prompt"][:]
    if max(map(len, prompts), default=0) > 2:
        raise ValueError(f"{benchmark} has prompts with examples, which lm-eval cannot ask. Use `tempo-trl evaluate`.")
    system = [messages[0]["content"] if messages[0]["role"] == "system" else "" for messages in prompts]
    user = [messages[-1]["content"] for messages in prompts]
    return {"test": rows.add_column("system", system).add_column("user", user)}


def accuracy(doc: dict, results: list[str]) -> dict[str, float]:
    """The grade of the first answer to a row (`process_results`). An answer that cannot be graded counts as wrong."""
    return {"accuracy": grade(doc, results[:1])[0] or 0.0}


def _rows(benchmark: str, settings: Settings) -> "Dataset":
    path = _local_rows(benchmark, settings.data_dir) if settings.data_dir else None
    return load_prompts(benchmark, settings.split, path, *(getattr(settings, name) for name in WORDS))


def _local_rows(benchmark: str, data_dir: str) -> Path:
    """The file of a benchmark in a folder of local rows."""
    found = sorted(Path(data_dir).glob(f"{benchmark}.*"))
    if len(found) != 1:
        raise FileNotFoundError(
            f"{data_dir} has {' and '.join(path.name for path in found) or 'no rows'} of {benchmark}, expected one "
            f"file such as {benchmark}.jsonl with the columns of {origin_of(BENCHMARKS[benchmark])}. Add or keep one."
        )
    return found[0]
