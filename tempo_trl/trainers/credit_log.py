"""Logging of a batch's credit: metrics over all ranks, and columns in the table of completions."""

import torch
from trl import GRPOTrainer

from tempo_trl.credit.anchors import anchor_sums
from tempo_trl.credit.metrics import credit_sums, largest_state_sums, tree_sums
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.merged_states import without_own_keys
from tempo_trl.trainers.observations import before_turns
from tempo_trl.trainers.rank_reports import RankReport, joined_columns, summed_metrics
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask


def log_credit(
    trainer: GRPOTrainer, batch: Batch, rows: ScoredRows, credit: Credit, reports: list[RankReport]
) -> dict[str, tuple[float, float]]:
    """
    Log `tempo/*`, `rollout/*` and the method's own metrics, and add the advantages to the table of completions.

    Every rank must call this. Returns numerators and denominators of `tempo/*`, summed over all ranks.
    """
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, value in summed_metrics(reports).items():
        metrics[name].append(value)
    for name, values in joined_columns(reports, len(rows.inputs)).items():
        trainer._logs["extra"][name].extend(values)
    if batch.grown is not None:
        log_sums(trainer, "rollout", trainer.rollout_func.statistics())
    outcome = batch.outcome[rows.place.own].nan_to_num(0.0)
    shares = credit_sums(outcome, credit.td, loss_mask(rows.output).cpu())
    sums = {name: tuple(rows.sum(dim=0).tolist()) for name, rows in shares.items()}
    if batch.num_generations > 1:  # a group of 1, which evaluation allows, has no tree
        flat = batch.flat_groups[batch.owned_groups]
        sums = tree_sums(batch.tree, batch.owned_groups) | {"flat_groups": (flat.sum().item(), len(flat))} | sums
    if trainer.tools or (trainer.rollout_func is not None and batch.grown is None):
        sums |= anchor_sums(batch.observations, batch.num_generations, batch.owned)
        counted = batch.owned & without_own_keys(batch, rows)
        sums |= largest_state_sums(before_turns(batch), batch.num_generations, counted)
    totals = log_sums(trainer, "tempo", sums)
    _log_table(trainer, rows.output, {name: r[:, 0] / r[:, 1].where(r[:, 1] > 0, 1.0) for name, r in shares.items()})
    return totals


def log_sums(
    trainer: GRPOTrainer, prefix: str, sums: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """
    Log `{prefix}/{name}` as the ratio of two sums over all ranks, and return the sums.

    Every rank must call this with the same names. A metric whose denominator is 0 is not logged, for example the depth
    of branches if there are none.
    """
    device = trainer.accelerator.device
    totals = trainer.accelerator.reduce(torch.tensor(list(sums.values()), device=device), reduction="sum").tolist()
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, (numerator, denominator) in zip(sums, totals, strict=True):
        if denominator:
            metrics[f"{prefix}/{name}"].append(numerator / denominator)
    return dict(zip(sums, map(tuple, totals), strict=True))


def keep_td_share(metrics: dict[str, list[float]]) -> None:
    """Log a share of 0 while all groups are flat: nothing is credited then, and nobody should miss the metric."""
    if metrics.get("tempo/flat_groups") and not metrics.get("tempo/td_share"):
        metrics["tempo/td_share"].append(0.0)


def _log_table(trainer: GRPOTrainer, output: dict, columns: dict[str, torch.Tensor]) -> None:
    """Replace the advantages in the rows that TRL has just added to its table, and add `(B,)` columns to them."""
    mask = loss_mask(output)
    advantages = output["advantages"].view(len(mask), -1)
    mean_advantage = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    own = torch.stack([mean_advantage, *(column.to(mask.device) for column in columns.values())], dim=1)
    rows = trainer.accelerator.gather(own).T.tolist()
    scalar = trainer._logs["advantages"]  # contains GRPO's advantages
    for _ in range(min(len(rows[0]), len(scalar))):
        scalar.pop()
    scalar.extend(rows[0])
    for name, values in zip(columns, rows[1:], strict=True):
        trainer._logs["extra"][name].extend(values)
