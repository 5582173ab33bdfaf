"""Files of a run: name patterns of weights, and atomic writing."""

import contextlib
import os
from pathlib import Path

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")


def write_atomically(path: Path, content: str | bytes) -> None:
    """
    Write a file atomically, and create the folders above it: a reader sees the old file or the new one.

    Raises:
        OSError: the file could not be written; no partial file is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"_{path.name}.{os.getpid()}.partial")  # pushes skip names with a leading underscore
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
