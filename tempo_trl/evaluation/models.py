"""The evaluated model: its location and fingerprint, and lm-eval's class for it."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.runs import files

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
    """The source of a model or PEFT adapter, in a folder or on the Hub.

    Raises:
        FileNotFoundError: the folder has no model.
        ValueError: there is no such folder, and no such name on the Hub.
    """
    from transformers.utils.peft_utils import find_adapter_config_file

    folder = Path(model).expanduser()
    if folder.is_dir() and not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise FileNotFoundError(
            f"model: {folder} has neither config.json nor adapter_config.json. Give the folder of a model, such as a "
            "checkpoint in it."
        )
    model = str(folder) if folder.is_dir() else model
    try:
        adapter_config = find_adapter_config_file(model)
    except (OSError, ValueError) as error:
        raise _could_not_load(model, error) from error
    if adapter_config is None:
        return Source(model)
    if importlib.util.find_spec("peft") is None:
        raise ImportError(f'model: {model} is a PEFT adapter, which needs peft: pip install "tempo_trl[peft]"')
    return Source(json.loads(Path(adapter_config).read_text())["base_model_name_or_path"], adapter=model)


def _could_not_load(model: str, error: Exception) -> ValueError:
    return ValueError(f"model: could not load {model}: {error}. Give the folder of a model, or its name on the Hub.")


def fingerprint(source: Source) -> str:
    """Fingerprint of the model, after that of its base: a hash of a folder's files, or the commit on the Hub."""
    return "+".join(map(_fingerprint, filter(None, source)))


def _fingerprint(model: str) -> str:
    if Path(model).is_dir():
        return files.fingerprint(Path(model))
    from huggingface_hub import try_to_load_from_cache

    cached = [try_to_load_from_cache(model, name) for name in files.DESCRIPTIONS]
    commits = [Path(path).parent.name for path in cached if isinstance(path, str)]
    return f"{model}@{commits[0]}" if commits else model


def load(settings: "Settings", source: Source) -> "TemplateLM":
    """Load the model with lm-eval's class for the backend.

    Raises:
        ValueError: the model cannot be loaded, or has no chat template.
    """
    from lm_eval.api.registry import get_model
    from lm_eval.utils import simple_parse_args_string

    arguments = _hf_arguments(source) if settings.backend == "hf" else _vllm_arguments(source, settings)
    given = simple_parse_args_string(settings.model_args)
    try:
        lm = get_model(settings.backend)(**arguments | {"batch_size": settings.batch} | given)
    except OSError as error:
        raise _could_not_load(settings.model, error) from error
    if not lm.tokenizer.chat_template:
        raise ValueError(
            f"model: the tokenizer of {source.name} has no chat template. Save the template that it was trained with "
            "as chat_template.jinja in its folder."
        )
    return lm


def _hf_arguments(source: Source) -> dict:
    import torch

    arguments = {"pretrained": source.pretrained, "device": "cuda" if torch.cuda.is_available() else "cpu"}
    return arguments | ({"peft": source.adapter, "tokenizer": _tokenizer(source)} if source.adapter else {})


def _vllm_arguments(source: Source, settings: "Settings") -> dict:
    arguments = {"pretrained": source.pretrained, "seed": settings.seed}
    if not source.adapter:
        return arguments
    from peft import PeftConfig

    rank = PeftConfig.from_pretrained(source.adapter).r
    lora = {"lora_local_path": source.adapter, "max_lora_rank": max(8, 1 << (rank - 1).bit_length())}
    return arguments | lora | {"tokenizer": _tokenizer(source)}


def _tokenizer(source: Source) -> str:
    """Source of the tokenizer: the adapter's folder if it has one, where trainers save it."""
    from transformers.utils import cached_file

    own = cached_file(source.adapter, "tokenizer_config.json", _raise_exceptions_for_missing_entries=False)
    return source.adapter if own else source.pretrained
