"""A record in a few numbers, close enough to tell another method, and its comparison within rounding."""

import json
import platform
import zlib
from collections import defaultdict
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import torch

HERE = Path(__file__).parent
# Kernels for another CPU (ATEN_CPU_CAPABILITY=default) move metrics and tensors by up to 6e-6 of their size or 6e-8.
RELATIVE, ABSOLUTE = 1e-4, 1e-6
STATE = ("credit_state.pt", "critic/model.safetensors")  # in a checkpoint, what is ours


def summary(seen: dict) -> dict:
    """
    Of a record: each metric's values; of the rest a checksum (ids, masks, texts) or `[size, norm, projection]`, with
    micro-batches, weights and the files of a column taken together.
    """
    parts = defaultdict(list)
    for name in sorted(seen):
        if (group := group_of(name)) is not None:
            parts[group].append(seen[name])
    return {group: in_short(group, values) for group, values in parts.items()}


def summary_of_ranks(records: list[dict]) -> dict:
    """That of the first, and of the others what each rank sees for itself: weights and metrics are those of all."""
    short = summary(records[0])
    for rank, seen in enumerate(records[1:], start=1):
        own = {group: value for group, value in summary(seen).items() if group in ("ids", "mask", "advantages")}
        short |= {f"rank {rank}/{group}": value for group, value in own.items()}
    return short


def group_of(name: str) -> str | None:
    """What an entry of a record is summed up with; None for what only the exact comparison looks at."""
    kind, *rest = name.split("/")
    if kind == "resumed":
        again = group_of("/".join(rest))
        return again and (None if again.startswith(("table", "trees", "checkpoint")) else f"resumed/{again}")
    if kind in ("ids", "mask", "advantages", "update"):
        return kind
    if kind in ("table", "trees"):
        return f"{kind}/{rest[1]}"
    if kind.startswith("checkpoint-") and "/".join(rest).startswith(STATE):
        return f"{kind}/{'/'.join(rest[: 1 + (rest[0] == 'critic')])}"
    return name if kind == "metrics" else None


def in_short(group: str, values: list[torch.Tensor] | list[list[str]]) -> str | list[float]:
    if isinstance(values[0], list):
        return checksum("\n".join(chain(*values)).encode())
    flat = torch.cat([value.flatten() for value in values])
    if "metrics/" in group:
        return [rounded(number) for number in flat.tolist()]
    return checksum(flat.numpy().tobytes()) if group.endswith(("ids", "mask")) else in_three_numbers(flat)


def checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def in_three_numbers(tensor: torch.Tensor) -> list[float]:
    """How many elements are not NaN, their norm, and their projection on a fixed direction: it sees sign and order."""
    direction = torch.cos(torch.arange(len(tensor), dtype=torch.float64))
    there = ~tensor.isnan()
    flat = tensor.double().where(there, 0.0)
    return [int(there.sum()), rounded(flat.norm().item()), rounded((flat @ direction).item())]


def rounded(number: float) -> float | None:
    return None if number != number else float(f"{number:.7g}")


def versions() -> dict[str, str]:
    """What the numbers depend on beside the code."""
    packages = {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate", "numpy")}
    cpu = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return {"python": platform.python_version(), **packages, "cpu": cpu}


def path_of(ranks: int) -> Path:
    return HERE / f"on_{ranks}_rank{'s' * (ranks > 1)}.json"


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def write(path: Path, contents: dict) -> None:
    """As JSON with a line for each entry of a case, which a diff can show."""
    blocks = []
    for case, entries in contents.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
        blocks.append(f" {json.dumps(case)}: {{\n{lines}\n }}")
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def differences(expected: dict, ours: dict) -> list[str]:
    """A line for each entry of the reference that ours lacks or has otherwise. What ours adds is no difference."""
    both = [name for name in expected if name in ours]
    other = [name for name in both if not alike(name, expected[name], ours[name])]
    return [
        *(f"{name} is missing" for name in expected if name not in ours),
        *(f"{name}: {ours[name]}, expected {expected[name]}" for name in other),
    ]


def alike(name: str, expected: str | list, ours: str | list) -> bool:
    if isinstance(expected, str) or len(expected) != len(ours):
        return expected == ours
    if "metrics/" in name:
        return all(close(a, b, RELATIVE * abs(b or 0)) for a, b in zip(ours, expected, strict=True))
    size, norm, _ = expected
    return ours[0] == size and all(close(a, b, RELATIVE * norm) for a, b in zip(ours[1:], expected[1:], strict=True))


def close(a: float | None, b: float | None, tolerance: float) -> bool:
    return a == b if a is None or b is None else abs(a - b) <= ABSOLUTE + tolerance
