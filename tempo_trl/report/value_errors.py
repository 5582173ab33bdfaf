"""How well equal and similar prefixes predict the rewards of recorded groups, and so whether a baseline would help."""

from collections.abc import Iterable

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tempo_trl.credit.kernel_baseline import Similarities, kernel_baseline_tokens
from tempo_trl.credit.kernel_covariance import KernelCovariance, KernelStatistics
from tempo_trl.credit.level_covariance import PairStatistics
from tempo_trl.credit.metrics import value_error_sums
from tempo_trl.credit.prefix_baseline import baseline_tokens
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.similarity import Sketch, prefix_similarities
from tempo_trl.report.group import Group

AT_ONCE = 16  # groups that are predicted before they are learned from
ENOUGH = 48  # smallest number of groups with different rewards for an answer


class ValueErrors:
    """
    Squared errors of the prefix and the kernel baseline, relative to that of the mean of the other completions.

    Groups are predicted from earlier groups alone. Those that were predicted before anything was learned do not count.
    """

    def __init__(self):
        self._waiting: list[Group] = []
        self._groups = 0
        self._sums = np.zeros((2, 2))  # of the prefix and the kernel baseline: numerator, denominator
        self._pairs, self._kernel = PairStatistics(), KernelStatistics.empty()

    def add(self, groups: Iterable[Group]) -> None:
        """Predict groups, and learn from them. Flat groups tell nothing."""
        for group in groups:
            scores = group.outcome[~np.isnan(group.rewards)]
            if len(scores) and np.ptp(scores) > 0:
                self._waiting.append(group)
            if len(self._waiting) == AT_ONCE:
                self._use()

    def ratios(self) -> tuple[float, float] | None:
        """Errors with equal prefixes, and with similar ones as well; None after too few groups."""
        if self._groups < ENOUGH:
            return None
        prefix, kernel = self._sums[:, 0] / self._sums[:, 1]
        return float(prefix), float(kernel)

    def _use(self) -> None:
        prefixes, kernel = PrefixCovariance(1), KernelCovariance(1)
        prefixes.update(self._pairs)
        kernel.update(self._kernel)
        for group in self._waiting:
            sums = self._predicted(group, prefixes, kernel)
            self._sums += sums if self._groups else 0.0
        self._groups += len(self._waiting)
        self._waiting = []

    def _predicted(self, group: Group, prefixes: PrefixCovariance, kernel: KernelCovariance) -> np.ndarray:
        size, sketch = len(group.ids), Sketch()
        ids = pad_sequence([torch.tensor(row, dtype=torch.long) for row in group.ids], batch_first=True)
        mask = pad_sequence([torch.tensor(np.asarray(row), dtype=torch.bool) for row in group.loss_mask], True)
        lengths, outcome = torch.tensor([len(row) for row in group.ids]), torch.tensor(group.known_outcome).double()
        tree, width = prefix_tree(ids, lengths, size), ids.shape[1]
        similar = Similarities(sketch.depths(width), prefix_similarities(ids, lengths, size, sketch).numpy())
        credit, taught = kernel_baseline_tokens(tree, outcome, width, similar, kernel)
        self._pairs += pair_statistics(tree, outcome)
        self._kernel += taught
        both = baseline_tokens(tree, outcome, width, prefixes), credit
        owned = torch.ones(size, dtype=torch.bool)
        return np.array([value_error_sums(advantages, outcome, mask, size, owned) for advantages in both])
