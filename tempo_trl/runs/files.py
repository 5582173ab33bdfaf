"""Files of a run: the model's, reading with errors that name the file, and atomic writing."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")
# Files other than weights that change a model's answers.
DESCRIPTIONS = ("config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def weights_in(folder: Path) -> list[Path]:
    """The files of a folder's weights; [] if it has no model."""
    return [path for pattern in WEIGHTS for path in folder.glob(pattern)]


def fingerprint(folder: Path) -> str:
    """A hash of the model in a folder: of its weights, and of what else changes its answers."""
    found = {*weights_in(folder), *(path for name in DESCRIPTIONS for path in folder.glob(name))}
    total = hashlib.sha256()
    for path in sorted(found):
        with path.open("rb") as file:
            total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def read_json(path: Path, advice: str) -> Any:
    """
    The content of a JSON file.

    Raises:
        ValueError: it is not JSON, or not UTF-8; the message names the file, and ends with `advice`.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}. {advice}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """
    Write a file atomically, and create the folders above it: a reader sees the old file or the new one, also after
    the machine has crashed.

    Raises:
        OSError: the file could not be written; no partial file is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"_{path.name}.{os.getpid()}.partial")  # pushes skip names with a leading underscore
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or a crash may keep the new name without its content
        os.replace(partial, path)
    except OSError as error:
        if error.errno:  # nobody knows the partial file
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
