"""Two records of the same cases, bit for bit."""

from collections.abc import Iterator
from pathlib import Path

import torch


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders of records, and return how many entries do."""
    files = sorted(path.relative_to(before) for path in before.glob("*/rank*.pt"))
    if not files:
        raise ValueError(f"{before} holds no record: expected RANKS/rank0.pt, as `python -m tests.reference` writes.")
    different = 0
    for file in files:
        records = [torch.load(folder / file, weights_only=False) for folder in (before, after)]
        different += sum(compare_cases(str(file), *records))
    print("bit for bit the same" if not different else f"{different} entries differ")
    return different


def compare_cases(file: str, before: dict[str, dict], after: dict[str, dict]) -> Iterator[int]:
    for case, expected in before.items():
        told = list(changes(expected, after.get(case, {})))
        added = sorted(set(after.get(case, {})) - set(expected))
        print(f"{file} {case}: {len(expected) - len(told)} of {len(expected)} the same, {len(added)} added")
        print("".join(f"    {line}\n" for line in (*told, *(f"added: {name}" for name in added))), end="")
        yield len(told)


def changes(expected: dict, ours: dict) -> Iterator[str]:
    for name, value in expected.items():
        if name not in ours:
            yield f"missing: {name}"
        elif not same(value, ours[name]):
            yield f"differs: {name}{how(value, ours[name])}"


def same(a: torch.Tensor | list[str], b: torch.Tensor | list[str]) -> bool:
    if isinstance(a, list) or isinstance(b, list):
        return a == b
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.numpy().tobytes() == b.numpy().tobytes()


def how(a: torch.Tensor | list[str], b: torch.Tensor | list[str]) -> str:
    if isinstance(a, list) or isinstance(b, list):
        return ""
    if a.shape != b.shape:
        return f" in shape: {tuple(b.shape)}, was {tuple(a.shape)}"
    return (
        f" by up to {(a.double() - b.double()).abs().max().item():.3g}, of up to {a.double().abs().max().item():.3g}"
    )
