"""How well shared prefixes predict the rewards of recorded groups, and so whether a baseline would help."""

from collections.abc import Iterable

import numpy as np
import torch

from tempo_trl.credit.level_covariance import PairStatistics
from tempo_trl.credit.metrics import value_error_sums
from tempo_trl.credit.prefix_baseline import baseline_tokens
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.report.group import Group, padded

AT_ONCE = 16  # groups that are predicted before they are learned from
ENOUGH = 48  # smallest number of groups with different rewards for an answer


class ValueErrors:
    """
    Squared error of the prefix baseline, relative to that of the mean of the other completions.

    Groups are predicted from earlier groups alone. Those that were predicted before anything was learned do not count.
    """

    def __init__(self):
        self._waiting: list[Group] = []
        self._groups = 0
        self._sums = np.zeros(2)  # numerator, denominator
        self._pairs = PairStatistics()

    def add(self, groups: Iterable[Group]) -> None:
        """Predict groups, and learn from them. Flat groups tell nothing."""
        for group in groups:
            scores = group.outcome[~np.isnan(group.rewards)]
            if len(scores) and np.ptp(scores) > 0:
                self._waiting.append(group)
            if len(self._waiting) == AT_ONCE:
                self._use()

    def ratio(self) -> float | None:
        """The relative error; None after too few groups."""
        return None if self._groups < ENOUGH else float(self._sums[0] / self._sums[1])

    def _use(self) -> None:
        covariance = PrefixCovariance(1)
        covariance.update(self._pairs)
        for group in self._waiting:
            sums = self._predicted(group, covariance)
            self._sums += sums if self._groups else 0.0
        self._groups += len(self._waiting)
        self._waiting = []

    def _predicted(self, group: Group, covariance: PrefixCovariance) -> np.ndarray:
        size, tree, mask = len(group.ids), group.prefix_tree(), padded(group.loss_mask, torch.bool)
        outcome = torch.tensor(group.known_outcome).double()
        self._pairs += pair_statistics(tree, outcome)
        advantages = baseline_tokens(tree, outcome, mask.shape[1], covariance)
        return np.array(value_error_sums(advantages, outcome, mask, size, torch.ones(size, dtype=torch.bool)))
