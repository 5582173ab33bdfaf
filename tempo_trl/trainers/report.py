"""What ranks tell each other about a batch, all at once: errors, sums and columns for the log, statistics, tokens."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from tempo_trl.credit.advantages import credit_sums
from tempo_trl.credit.anchors import state_sums
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.prefix_tree import tree_sums
from tempo_trl.runs.criteria import criteria_text, spans_of
from tempo_trl.runs.metrics import CRITERIA
from tempo_trl.trainers.scored_rows import ScoredRows

Sums = dict[str, tuple[float, float]]  # numerators and denominators of metrics, by name
ADVANTAGE = "advantage"  # the column of TRL's table of completions that shows GRPO's, until it shows ours


class Totals(NamedTuple):
    """
    The reports of all ranks together. Every rank has the same.

    Args:
        sums: Numerators and denominators of metrics, by name.
        columns: Columns of the table of completions, in rank order.
        statistics: What a method with a state learns from, of each rank.
        tokens: Tokens of the loss.
    """

    sums: Sums
    columns: dict[str, list]
    statistics: list
    tokens: int

    @property
    def metrics(self) -> dict[str, float]:
        """The ratios of the sums, without those whose denominator is 0, such as the depth of branches if none are."""
        return {name: numerator / denominator for name, (numerator, denominator) in self.sums.items() if denominator}


@dataclass
class Report:
    """
    What one rank reports of a batch. The user's functions and the method add to it, until all ranks meet.

    The first error of the user's functions is kept until then, because the others wait for this rank's rows.

    Args:
        rank (`int`): This rank, for the message.
        sums (`dict[str, tuple[float, float]]`): Numerators and denominators of metrics, by name.
        columns (`dict[str, list]`): Columns of the table of completions, with a value per row of this rank.
        cause (`Exception`, *optional*): The error that is kept.
    """

    rank: int
    sums: Sums = field(default_factory=dict)
    columns: dict[str, list] = field(default_factory=dict)
    cause: Exception | None = None
    # A message, and whether a function returned something invalid.
    _failure: tuple[str, bool] | None = field(default=None, init=False)
    _pickled: bytes = field(default=b"", init=False)
    _tokens: int = field(default=0, init=False)

    @contextmanager
    def keeps_errors_of(self, name: str) -> Iterator[None]:
        """Ends the block at an error, and keeps the error. `name` is what the user calls the function."""
        try:
            yield
        except Exception as error:
            if self.cause is None:
                invalid = isinstance(error, ValueError)
                what = f"failed: {error}" if invalid else f"raised {type(error).__name__}: {error}"
                self.cause, self._failure = error, (f"{name} {what} (on rank {self.rank})", invalid)

    def add(self, sums: Sums, columns: dict[str, list] | None = None) -> None:
        """Add sums, and columns of the table of completions."""
        self.sums = summed(chain(self.sums.items(), sums.items()))
        self.columns |= columns or {}

    def add_credit(self, rows: ScoredRows, credit: Credit) -> None:
        """Add the credit of this rank's rows, as it is in TRL's batch now, and of the criteria judged in them."""
        mask, advantages = rows.loss_mask, rows.output["advantages"]
        if credit.loss_mask is not None:
            mask = mask * credit.loss_mask.to(mask)
        shares = credit_sums(credit.reference, credit.added, mask.cpu())
        sums = {f"tempo/{name}": share.sum(dim=0).tolist() for name, share in shares.items()}
        means = (advantages.view(len(mask), -1) * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        columns = {name: (share[:, 0] / share[:, 1].where(share[:, 1] > 0, 1.0)) for name, share in shares.items()}
        columns = {name: column.tolist() for name, column in (columns | {ADVANTAGE: means}).items()}
        if rows.criteria is not None:
            columns[CRITERIA] = [criteria_text(spans) for spans in spans_of(rows.criteria, credit.criteria)]
        self.add(credit.metrics | sums, columns)
        self._tokens, self._pickled = mask.sum().item(), pickle.dumps(credit.statistics)  # here: an error has its rank

    def over_ranks(self, rows: int) -> Totals:
        """
        The reports of all ranks, of `rows` rows each. Every rank must call this for every batch.

        Raises:
            ValueError: on every rank, if a function of the user's returned something invalid on one of them.
            RuntimeError: on every rank, if it raised any other error.
        """
        own = (self._failure, self.sums, self.columns, self._pickled, self._tokens)
        failures, sums, columns, pickled, tokens = zip(*gather_object([own]), strict=True)
        for message, invalid in filter(None, failures):
            raise (ValueError if invalid else RuntimeError)(message) from self.cause
        names = dict.fromkeys(name for own in columns for name in own)  # of which some ranks may have none
        joined = {name: [value for own in columns for value in own.get(name, [None] * rows)] for name in names}
        of_all = summed(chain.from_iterable(own.items() for own in sums))
        return Totals(of_all, joined, [*map(pickle.loads, pickled)], sum(tokens))


def summed(entries: Iterable[tuple[str, tuple[float, float]]]) -> Sums:
    """Sums of numerators and denominators by name."""
    sums: Sums = {}
    for name, (numerator, denominator) in entries:
        before = sums.get(str(name), (0.0, 0.0))
        sums[str(name)] = before[0] + float(numerator), before[1] + float(denominator)
    return sums


def sums_of(trainer: GRPOTrainer, batch: Batch) -> Sums:
    """Sums of a batch's groups that are counted on this rank: of their trees, of an agent's states, of grown trees."""
    sums: Sums = {}
    if batch.num_generations > 1:  # a group of 1, which evaluation allows, has no tree
        counted = batch.counted_groups
        flat = batch.flat_groups[counted]
        sums |= tree_sums(batch.tree, batch.counted.numpy()) | {"frac_zero_std": (flat.sum(), len(flat))}
    if trainer.sees_answers:
        sums |= state_sums(batch.seen_before_turns, batch.num_generations, batch.counted)
    sums = {f"tempo/{name}": own for name, own in sums.items()}
    if batch.tree_rollouts is not None:
        sums |= {f"rollout/{name}": own for name, own in trainer.rollout_func.statistics().items()}
    return sums


def log_totals(trainer: GRPOTrainer, totals: Totals) -> None:
    """Log the metrics of a batch, and replace GRPO's advantages in the table of completions, to which columns go."""
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, value in totals.metrics.items():
        metrics[name].append(value)
    advantages, theirs = totals.columns[ADVANTAGE], trainer._logs["advantages"]
    for _ in range(min(len(advantages), len(theirs))):
        theirs.pop()
    theirs.extend(advantages)
    for name, values in totals.columns.items():
        if name != ADVANTAGE:
            trainer._logs["extra"][name].extend(values)


def log_sums(trainer: GRPOTrainer, prefix: str, sums: Sums) -> None:
    """
    Log `{prefix}/{name}` as the ratio of two sums over all ranks, of a loss.

    Every rank must call this with the same names. A metric whose denominator is 0 is not logged.
    """
    device = trainer.accelerator.device
    totals = trainer.accelerator.reduce(torch.tensor(list(sums.values()), device=device), reduction="sum").tolist()
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    for name, (numerator, denominator) in zip(sums, totals, strict=True):
        if denominator:
            metrics[f"{prefix}/{name}"].append(numerator / denominator)
