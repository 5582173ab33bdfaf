"""Ridge regression from sums over batches, with forgetting."""

from typing import NamedTuple

import torch

PENALTIES = (10.0, 100.0, 1000.0, 10000.0)  # in units of the features' variance, for one completion


class Sums(NamedTuple):
    """Sums over tokens with weight 1 / length, so that each completion counts the same."""

    weight: torch.Tensor  # ()
    x: torch.Tensor  # (D,)
    xx: torch.Tensor  # (D, D)
    xy: torch.Tensor  # (D,)


class Ridge:
    """The regression, in closed form."""

    def __init__(self):
        self._sums, self._coefficients = None, {}

    @staticmethod
    def sums(features: torch.Tensor, targets: torch.Tensor, inside: torch.Tensor) -> Sums:
        """
        The sums of a batch.

        Args:
            features (`torch.Tensor` of shape `(R, T, D)`, float32): 0 for padding.
            targets (`torch.Tensor` of shape `(R,)`): Of all tokens of a row.
            inside (`torch.Tensor` of shape `(R, T)`, bool): False for padding.
        """
        weights = (inside / inside.sum(dim=1, keepdim=True).clamp(min=1))[inside]
        x, y = features[inside], targets.repeat_interleave(inside.sum(dim=1))
        weighted = weights[:, None] * x
        return Sums(weights.sum(), weighted.sum(dim=0), weighted.T @ x, weighted.T @ y)

    def add(self, sums: Sums, forgetting: float) -> None:
        """Learn from a batch; what was learned before keeps the share `forgetting` of its weight."""
        old = self._sums or Sums(*map(torch.zeros_like, sums))
        self._sums = Sums(*(forgetting * before + new for before, new in zip(old, sums, strict=True)))
        self._coefficients = {}

    def predicted(self, features: torch.Tensor, penalty: float) -> torch.Tensor:
        """Predictions for states, `(...)`; 0 before the first batch."""
        if self._sums is None:
            return torch.zeros(features.shape[:-1])
        if penalty not in self._coefficients:
            self._coefficients[penalty] = self._solved(penalty)
        slope, mean = self._coefficients[penalty]
        return (features - mean) @ slope

    def _solved(self, penalty: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Slopes `(D,)` and the features' means; the targets' mean is 0, because they are deviations in groups."""
        weight, x, xx, xy = (part.double() for part in self._sums)
        mean = x / weight
        covariance = xx - weight * mean[:, None] * mean
        scale = (covariance.diagonal() / weight).clamp(min=1e-12).sqrt()
        gram = (covariance / (scale[:, None] * scale)).float()
        gram.diagonal().add_(penalty)
        factor = torch.linalg.cholesky(gram)  # in float32: the penalty keeps it well-conditioned
        return torch.cholesky_solve((xy / scale).float()[:, None], factor)[:, 0] / scale.float(), mean.float()

    def state_dict(self) -> dict:
        return {"sums": self._sums and list(self._sums)}

    def load_state_dict(self, state: dict) -> None:
        self._sums, self._coefficients = state["sums"] and Sums(*state["sums"]), {}
