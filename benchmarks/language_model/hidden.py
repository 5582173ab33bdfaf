"""Values from the policy's own hidden states: ridge regression in closed form, fitted on other prompts.

It predicts how much a completion's reward differs from the mean of the others of its group, from the hidden states
before each token: the middle and the last layer, and the running mean of each over the completion.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.language_model.ridge import PENALTIES, Ridge
from benchmarks.language_model.rollouts import GROUP, Rolled
from benchmarks.language_model.values import leave_one_out, own_rewards


class States(NamedTuple):
    """
    Features of the states before each token of some completions.

    Args:
        features (`np.ndarray` of shape `(R, T, D)`, float32): 0 for padding.
        lengths (`np.ndarray` of shape `(R,)`): Tokens of each completion.
    """

    features: np.ndarray
    lengths: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        return np.arange(self.features.shape[1]) < self.lengths[:, None]


@torch.no_grad()
def states_of(model, prompts: Sequence[Rolled]) -> States:
    """Features of the groups of some prompts, a prompt at a time."""
    found = [_features(model, rolled) for rolled in prompts]
    width = max(own.shape[1] for own in found)
    padded = [np.pad(own, ((0, 0), (0, width - own.shape[1]), (0, 0))) for own in found]
    lengths = np.array([len(ids) for rolled in prompts for ids in rolled.completion_ids[:GROUP]])
    return States(np.concatenate(padded), lengths)


def _features(model, rolled: Rolled) -> np.ndarray:
    rows, begin = rolled.completion_ids[:GROUP], len(rolled.prompt_ids)
    width = max(map(len, rows))
    ids = torch.tensor([rolled.prompt_ids + row + [0] * (width - len(row)) for row in rows])  # padding is at the end
    layers = model(input_ids=ids, output_hidden_states=True).hidden_states
    found = []
    for layer in (layers[len(layers) // 2], layers[-1]):
        before = layer[:, begin - 1 : -1].float()  # the state before token t ends with the token before it
        counts = torch.arange(1, width + 1)[:, None]
        found += [before, before.cumsum(dim=1) / counts]
    inside = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    return (torch.cat(found, dim=-1) * inside[:, :, None]).numpy()


class Probe:
    """
    The regression on the states of some groups.

    Args:
        states ([`States`]): Of the groups that it is fitted on.
        targets (`np.ndarray` of shape `(R,)`): Rewards less the mean of the others.
        penalty (`float`): Weight of the squared coefficients, in units of the features' variance.
    """

    def __init__(self, states: States, targets: np.ndarray, penalty: float):
        self._ridge, self._penalty = Ridge(), penalty
        parts = states.features, targets.astype(np.float32), states.inside
        self._ridge.add(Ridge.sums(*map(torch.from_numpy, parts)), forgetting=0.0)

    def __call__(self, states: States) -> np.ndarray:
        """Predicted deviations before each token, `(R, T)`; 0 for padding."""
        return self._ridge.predicted(torch.from_numpy(states.features), self._penalty).numpy() * states.inside


def deviations(prompts: Sequence[Rolled]) -> np.ndarray:
    """Rewards less the mean of the others of their group, `(R,)`."""
    rewards = np.array([own_rewards(rolled) for rolled in prompts])
    return (rewards - leave_one_out(rewards)).ravel()


def best_penalty(states: States, targets: np.ndarray) -> float:
    """The penalty that predicts the second half of the prompts best from the first."""
    middle = len(states.lengths) // GROUP // 2 * GROUP
    one, other = (States(states.features[part], states.lengths[part]) for part in (slice(middle), slice(middle, None)))

    def error(penalty: float) -> float:
        wrong = (Probe(one, targets[:middle], penalty)(other) - targets[middle:, None]) ** 2 * other.inside
        return float((wrong.sum(axis=1) / other.lengths).mean())

    return min(PENALTIES, key=error)
