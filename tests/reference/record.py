"""A run of a case as a flat dict of everything that must not change: `name -> tensor or list of texts`."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from trl import GRPOTrainer

from .cases import trainer_of

CLOCKS = ("_time", "_runtime", "_per_second", "_seconds")


def record(options: dict, model: str, folder: str) -> dict[str, torch.Tensor | list[str]]:
    """Train a case; one with `save_steps` once more from its checkpoint, as `resumed/...`."""
    seen = trained(trainer_of(options, model, folder))
    if "save_steps" in options:
        checkpoint = f"{folder}/checkpoint-{options['save_steps']}"
        again = trained(trainer_of(options, model, folder), checkpoint)
        seen |= {f"resumed/{name}": value for name, value in again.items()}
    return seen


def trained(trainer, checkpoint: str | None = None) -> dict[str, torch.Tensor | list[str]]:
    """Train, from a checkpoint if there is one, and gather what has been seen, logged, written and learned."""
    start = weights(trainer)
    with watched_losses() as losses:
        trainer.train(resume_from_checkpoint=checkpoint)
    seen = {f"{name}/{i:02d}": value for i, batch in enumerate(losses) for name, value in batch.items()}
    seen |= {f"metrics/{name}": torch.tensor(values) for name, values in metrics(trainer).items()}
    for name, value in weights(trainer).items():
        seen |= {f"weights/{name}": value, f"update/{name}": value.double() - start[name].double()}
    trainer.accelerator.wait_for_everyone()  # rank 0 has written its files
    if trainer.accelerator.is_main_process:
        seen |= written(Path(trainer.args.output_dir))
    return seen


@contextmanager
def watched_losses() -> Iterator[list[dict[str, torch.Tensor]]]:
    """What enters TRL's own loss, micro-batch by micro-batch: whatever a method does, it trains by this."""
    losses, compute = [], GRPOTrainer._compute_loss

    def watched(trainer, model, inputs):
        mask = inputs["completion_mask"].bool()
        in_loss = mask & inputs.get("tool_mask", mask).bool()
        advantages = inputs["advantages"].view(len(mask), -1).expand(mask.shape)
        losses.append(
            {
                "ids": inputs["completion_ids"].where(mask, -1),
                "mask": in_loss,
                "advantages": advantages.where(in_loss, 0.0).clone(),
            }
        )
        return compute(trainer, model, inputs)

    with patch.object(GRPOTrainer, "_compute_loss", watched):
        yield losses


def weights(trainer) -> dict[str, torch.Tensor]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def metrics(trainer) -> dict[str, list[float]]:
    """Each metric's values in the order of the log, without clocks."""
    values = defaultdict(list)
    for entry in trainer.state.log_history:
        for name, value in entry.items():
            if not name.endswith(CLOCKS):
                values[name].append(float("nan") if value is None else float(value))
    return values


def written(folder: Path) -> dict[str, torch.Tensor | list[str]]:
    """The tables of completions, the recorded trees and the checkpoints of a run folder."""
    seen = {}
    for kind, pattern in {"table": "completions/*.parquet", "trees": "tempo/*.parquet"}.items():
        for path in sorted(folder.glob(pattern)):
            frame = pd.read_parquet(path)
            seen |= {f"{kind}/{path.stem}/{name}": column(frame[name]) for name in frame}
    for checkpoint in sorted(folder.glob("checkpoint-*")):
        paths = sorted(path for path in checkpoint.rglob("*") if path.is_file())
        seen[f"{checkpoint.name}/files"] = [str(path.relative_to(checkpoint)) for path in paths]
        for path in paths:
            for name, value in state(path):
                seen[f"{checkpoint.name}/{path.relative_to(checkpoint)}{name}"] = value
    return seen


def column(values: pd.Series) -> torch.Tensor | list[str]:
    """A column as one flat tensor, NaN for None, or as texts."""
    flat = [x for value in values for x in (value if isinstance(value, np.ndarray) else [value])]
    if any(isinstance(value, str | dict) for value in flat):
        return [str(value) for value in flat]
    return torch.tensor([float("nan") if value is None else float(value) for value in flat], dtype=torch.float64)


def state(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of every number in a file of a checkpoint; nothing of a file that has none."""
    if path.suffix == ".safetensors":
        yield from leaves(load_file(path))
    elif path.name in ("optimizer.pt", "scheduler.pt", "credit_state.pt"):
        yield from leaves(torch.load(path, weights_only=True))


def leaves(tree, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, bool | int | float):
        yield name, torch.tensor(tree, dtype=torch.float64)
    elif isinstance(tree, dict | list | tuple):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, f"{name}/{key}")
