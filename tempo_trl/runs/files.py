"""Files of a run: how weights are called, and writing what readers see whole or not at all."""

import contextlib
import os
from pathlib import Path

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")


def write_atomically(path: Path, content: str | bytes) -> None:
    """
    Write a file, and the folders above it: a reader sees the old file or the new one, never half of it.

    Raises:
        OSError: the disk refuses; nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"_{path.name}.{os.getpid()}.partial")  # pushes pass over what begins with an underscore
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
