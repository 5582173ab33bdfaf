"""Functions that our task files for lm-eval call: rows with their prompts, and the grade of an answer.

As in training, prompts come from [`~tempo_trl.data.load_prompts`] and grades from the reward functions.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.data.loading import origin_of
from tempo_trl.evaluation.grading import grade
from tempo_trl.evaluation.settings import TASKS_FOLDER

if TYPE_CHECKING:
    from datasets import Dataset
    from lm_eval.api.task import Task

    from tempo_trl.evaluation.settings import Settings

SUFFIXES = (".jsonl", ".json", ".parquet")


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
    path = local_rows(benchmark, data_dir) if data_dir else None
    rows = load_prompts(benchmark, None, path, system_prompt, instruction, prompt_style)
    prompts = rows["prompt"][:]
    system = [messages[0]["content"] if messages[0]["role"] == "system" else "" for messages in prompts]
    user = [messages[-1]["content"] for messages in prompts]
    return {"test": rows.add_column("system", system).add_column("user", user)}


def local_rows(benchmark: str, data_dir: str) -> Path:
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


def accuracy(doc: dict, results: list[str]) -> dict[str, float]:
    """The grade of the first answer to a row (`process_results`). An answer that cannot be graded counts as wrong."""
    return {"accuracy": grade([doc], [results[:1]]).correct[0][0] or 0.0}


class Question(NamedTuple):
    """A row of a task, and the text for the model: its messages in the chat template."""

    row: dict
    prompt: str

    @property
    def sha256(self) -> str:
        """Hash of the messages without the chat template, so that it is the same for all models and dates."""
        return hashlib.sha256(json.dumps(self.row["prompt"], sort_keys=True).encode()).hexdigest()


def load_tasks(settings: "Settings") -> dict[str, "Task"]:
    """lm-eval's tasks from our task files, by the names of the benchmarks."""
    from lm_eval.tasks import TaskManager

    names = ("data_dir", "prompt_style", "system_prompt", "instruction")
    metadata = {name: getattr(settings, name) for name in names}
    manager = TaskManager(include_path=TASKS_FOLDER, include_defaults=False, metadata=metadata)
    return {name: manager.load(f"tempo_{name}")["tasks"][f"tempo_{name}"] for name in settings.task_names}


def questions(task: "Task", chat_template: Callable[..., str], limit: int | None) -> list[Question]:
    """The first `limit` rows of a task, with the prompts that lm-eval builds."""
    options = {"apply_chat_template": True, "fewshot_as_multiturn": True, "chat_template": chat_template}
    rows = [row for _, row in task.doc_iterator(limit=limit)]
    return [Question(row, task.fewshot_context(doc=row, num_fewshot=0, **options)) for row in rows]
