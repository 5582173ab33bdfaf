"""The evaluated model: its location and fingerprint, and lm-eval's class for it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.runs import files
from tempo_trl.runs.log import checkpoints

if TYPE_CHECKING:
    from lm_eval.api.model import TemplateLM

    from tempo_trl.evaluation.settings import Settings


class Source(NamedTuple):
    """The source of a model: folder or Hub name of its weights, and of its PEFT adapter, if any."""

    pretrained: str
    adapter: str | None = None

    @property
    def name(self) -> str:
        """Name to display: of a folder only the last part."""
        model = self.adapter or self.pretrained
        return Path(model).resolve().name if Path(model).is_dir() else model


def find(model: str) -> Source:
    """The source of a model or PEFT adapter, in a folder or on the Hub. ValueError without weights, or with both."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if Path(model).is_dir() and not files.weights_in(Path(model)):
        such = "".join(f", such as {path}" for path in checkpoints(Path(model))[:1])
        raise ValueError(f"{model} has no model. Finish its training, or give one of its checkpoints{such}.")
    adapter_config = find_adapter_config_file(model)
    whole = [path.name for path in files.weights_in(Path(model)) if not path.name.startswith("adapter_model")]
    if adapter_config and whole:
        raise ValueError(f"{model} has an adapter and a whole model, {whole[0]}, of two runs. Remove one of them.")
    if adapter_config is None:
        return Source(model)
    return Source(json.loads(Path(adapter_config).read_text())["base_model_name_or_path"], adapter=model)


def fingerprint(source: Source, revision: str | None = None) -> str:
    """Fingerprint of the model, after that of its base: a hash of a folder's files, or the commit on the Hub."""
    adapter = [_fingerprint(source.adapter)] if source.adapter else []
    return "+".join([_fingerprint(source.pretrained, revision), *adapter])


def _fingerprint(model: str, revision: str | None = None) -> str:
    if Path(model).is_dir():
        return files.fingerprint(Path(model))
    from huggingface_hub import try_to_load_from_cache

    cached = [try_to_load_from_cache(model, name, revision=revision) for name in files.DESCRIPTIONS]
    commits = [Path(path).parent.name for path in cached if isinstance(path, str)]
    return f"{model}@{commits[0]}" if commits else model


def load(settings: "Settings", source: Source) -> "TemplateLM":
    """Load the model with lm-eval's class for the backend.

    Raises:
        ValueError: the model has no chat template.
    """
    from lm_eval.api.registry import get_model

    arguments = {"pretrained": source.pretrained, "batch_size": settings.batch}
    if settings.backend == "hf":
        arguments["device"] = "auto"  # a GPU if there is one; the default is cuda
    if source.adapter:
        arguments |= _adapter_arguments(source, settings.backend)
    lm = get_model(settings.backend)(**arguments | settings.model_arguments)
    if not lm.tokenizer.chat_template:
        raise ValueError(
            f"model: the tokenizer of {source.name} has no chat template. Save the template that it was trained with "
            "as chat_template.jinja in its folder."
        )
    return lm


def _adapter_arguments(source: Source, backend: str) -> dict:
    from peft import PeftConfig

    if backend == "hf":
        return {"peft": source.adapter, "tokenizer": _tokenizer(source)}
    rank = PeftConfig.from_pretrained(source.adapter).r
    max_lora_rank = max(8, 1 << (rank - 1).bit_length())
    return {"lora_local_path": source.adapter, "max_lora_rank": max_lora_rank, "tokenizer": _tokenizer(source)}


def _tokenizer(source: Source) -> str:
    """Source of the tokenizer: the adapter's folder if it has one, where trainers save it."""
    from transformers.utils import cached_file

    own = cached_file(source.adapter, "tokenizer_config.json", _raise_exceptions_for_missing_entries=False)
    return source.adapter if own else source.pretrained
