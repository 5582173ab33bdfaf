"""Log-probabilities on the tree: difference to TRL's, time and memory of an update, in float32 and bf16.

The rows of benchmarks/packing.py. On a GPU in bf16 all rows of a tree go through one call of the variable-length
kernel, which is compared, forward and backward, with one call a row. TRL's way is timed with each attention that is
installed.
"""

import tempfile

import torch
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from benchmarks import packing
from benchmarks.gpu.section import Row, main
from tempo_trl.tree_forward import tree_attention, varlen_attention
from tempo_trl.tree_forward.paths import lay_paths
from tempo_trl.tree_forward.tree_pass import State

INSTALLED = {"flash_attention_2": is_flash_attn_2_available, "flash_attention_3": is_flash_attn_3_available}


def of_type(device: torch.device, half: bool, shapes: tuple, pairs: int) -> list[Row]:
    """Rows of both ways of sharing, in one type."""
    found, name = [], "bf16" if half else "float32"
    with tempfile.TemporaryDirectory() as folder:
        trainer = packing.build(folder, device.type, half)
        for shape in shapes:
            for sharing in ("prompt", "tree"):
                batch = packing.scored_group(shape, sharing, device)
                off = packing.largest_difference(trainer, batch)
                ratio = packing.time_ratio(trainer, batch, pairs)
                kept = [packing.kept_bytes(trainer, batch, state) for state in (State.IN_USE, State.OFF)]
                figure = f"{name}, {shape}, {sharing}: token ratio, gain in time, memory, largest difference"
                measured = f"{packing.token_ratio(batch):.2f}, x{ratio:.2f}, {kept[0] / kept[1] - 1:+.0%}, {off:.1e}"
                found.append((figure, f"{measured} nats"))
    return found


def varlen(device: torch.device) -> Row:
    """The largest difference of the kernel to one call a row, of output and gradients."""
    figure = "variable-length kernel against one call per row, output and gradients"
    paths, _ = lay_paths([0, 64, 64, 16], [128, 128, 96, 128])
    length = sum(paths.tail_sizes)
    torch.manual_seed(0)
    shapes = [(1, 8, length, 64), (1, 4, length, 64), (1, 4, length, 64)]
    tensors = [torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    if not tree_attention.can_attend_at_once(tensors[0], tensors[2]):
        return figure, "not run: this device or torch has no such kernel"
    keys, values = paths.gather(tensors[1], 2), paths.gather(tensors[2], 2)
    rows = zip(tensors[0].split(paths.tail_sizes, dim=2), keys, values, strict=True)
    by_row = [tree_attention._row_attention(*row, None, None, {}) for row in rows]
    by_row = torch.cat(by_row, dim=2).transpose(1, 2)
    at_once = varlen_attention.attend_at_once(tensors[0], keys, values, paths, None, None)
    gradients = [torch.autograd.grad(x.float().square().sum(), tensors, retain_graph=True) for x in (by_row, at_once)]
    pairs = [(by_row, at_once), *zip(*gradients, strict=True)]
    return figure, ", ".join(f"{(a - b).abs().max().item():.1e}" for a, b in pairs)


def with_kernel(name: str, device: torch.device, shape: packing.Shape, pairs: int) -> Row:
    """Time of TRL's update with another attention over the tree's."""
    figure = f"TRL's update with {name} over the tree's, {shape}"
    if device.type == "cpu" or not INSTALLED[name]():
        return figure, f"not run: {name} is not installed here"
    with tempfile.TemporaryDirectory() as folder:
        trainer = packing.build(folder, device.type, half=True)
        batch = packing.scored_group(shape, "prompt", device)
        seconds = {}
        for state, attention in ((State.IN_USE, "sdpa"), (State.OFF, name)):
            trainer.model.set_attn_implementation(attention)
            times = [
                packing.time_of(lambda: packing.loss_of(trainer, batch, state).backward(), device)  # noqa: B023
                for _ in range(pairs + 1)
            ]
            seconds[state] = min(times[1:])
    return figure, f"x{seconds[State.OFF] / seconds[State.IN_USE]:.2f}"


def rows(device: torch.device, tiny: bool) -> list[Row]:
    shapes, pairs = (packing.QUICK, 1) if tiny else (packing.SHAPES, packing.PAIRS)
    # In float32 CUDA has no kernel for grouped heads: TRL's own update of the largest shape takes more than 80 GB.
    found = of_type(device, False, shapes[:1], pairs) + of_type(device, True, shapes, pairs)
    return [*found, varlen(device), *(with_kernel(name, device, shapes[0], pairs) for name in INSTALLED)]


if __name__ == "__main__":
    main(rows)
