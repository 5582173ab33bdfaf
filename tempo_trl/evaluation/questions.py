"""The questions of an evaluation: as in training, the prompts of [`~tempo_trl.data.load_prompts`]."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.data.loading import origin_of
from tempo_trl.evaluation.settings import WORDS, Settings

if TYPE_CHECKING:
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
    others = settings.chat_template_kwargs or {}
    options = {"tokenize": False, "add_generation_prompt": True, **others, **thinking}
    path = _local_rows(benchmark, settings.data_dir) if settings.data_dir else None
    dataset = load_prompts(benchmark, settings.split, path, *(getattr(settings, name) for name in WORDS))
    rows = dataset.to_list()[: settings.limit]
    return [Question(row, lm.tokenizer.apply_chat_template(row["prompt"], **options)) for row in rows]


def _local_rows(benchmark: str, data_dir: str) -> Path:
    """The file of a benchmark in a folder of local rows."""
    found = sorted(Path(data_dir).glob(f"{benchmark}.*"))
    if len(found) != 1:
        raise FileNotFoundError(
            f"{data_dir} has {' and '.join(path.name for path in found) or 'no rows'} of {benchmark}, expected one "
            f"file such as {benchmark}.jsonl with the columns of {origin_of(BENCHMARKS[benchmark])}. Add or keep one."
        )
    return found[0]
