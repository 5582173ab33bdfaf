"""What true values say: when a reward is decided, how wrong each estimate of a value is, and where TD errors lie.

Everything is a ratio of sums over prompts, with a bootstrap interval over prompts. Squares of true values are products
of two independent estimates ([`~benchmarks.language_model.rollouts.halves`]).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.language_model.rollouts import GROUP, PLACES, Rolled, halves
from tempo_trl.credit.prefix_baseline import tree_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree

RESAMPLES, SEED = 2000, 0
LARGEST, PARTS = (1, 2, 4), 4  # of a completion
GROUPS_AT_ONCE = 16
FOREVER = 10**6  # batches: the policy of the samples does not change


@dataclass
class Samples:
    """Groups of tokenised completions: rows `ids` of `lengths`, `size` to a group, whose `rewards` are `(P, G)`."""

    ids: np.ndarray
    lengths: np.ndarray
    rewards: np.ndarray
    size: int

    def batches(self, among: np.ndarray) -> Iterator["Samples"]:
        """Batches of the groups whose index is `among`, cut to their longest completion."""
        for first in range(0, len(among), GROUPS_AT_ONCE):
            groups = among[first : first + GROUPS_AT_ONCE]
            rows = (groups[:, None] * self.size + np.arange(self.size)).ravel()
            lengths = self.lengths[rows]
            yield Samples(self.ids[rows, : lengths.max()], lengths, self.rewards[groups], self.size)


class Prefixes:
    """The adaptive prefix baseline, which learns from the batches that it has predicted."""

    def __init__(self):
        self.covariance = PrefixCovariance(FOREVER)

    def __call__(self, batch: Samples, learn: bool) -> np.ndarray:
        """The baselines of a batch, `(R, T)`."""
        tree = prefix_tree(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths), batch.size)
        rewards = torch.from_numpy(batch.rewards.ravel())
        baselines = tree_baselines(tree, rewards, batch.ids.shape[1], self.covariance)
        if learn:
            self.covariance.update(pair_statistics(tree, rewards))
        return baselines


def ratio(top: np.ndarray, bottom: np.ndarray) -> list[float]:
    """
    Ratio of the sums over prompts of `(P,)` numbers, and the ends of its 95% bootstrap interval.

    NaN where the denominator is 0; resamples with such a denominator are left out.
    """
    draws = np.random.default_rng(SEED).integers(0, len(top), (RESAMPLES, len(top)))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = top[draws].sum(axis=1) / bottom[draws].sum(axis=1)
        whole = top.sum() / bottom.sum()
    finite = ratios[np.isfinite(ratios)]
    low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) else (np.nan, np.nan)
    return [float(whole), float(low), float(high)]


def own_rewards(rolled: Rolled) -> np.ndarray:
    """Rewards of the group, `(G,)`."""
    return np.array(rolled.rewards[:GROUP])


def running(rolled: Rolled) -> np.ndarray:
    """Whether a completion of the group has not ended at the start and at each place, `(G, 8)`."""
    lengths = np.array([len(ids) for ids in rolled.completion_ids[:GROUP]])
    return np.array([0, *PLACES]) < lengths[:, None]


def true_values(rolled: Rolled) -> tuple[np.ndarray, np.ndarray]:
    """
    Two independent estimates of the values at the start and at each place, `(G, 8)` each; the reward after the end.
    """
    start = halves(np.array(rolled.rewards[GROUP:]))
    found = np.repeat(own_rewards(rolled)[None, :, None], 2, axis=0).repeat(1 + len(PLACES), axis=2)
    for row, states in enumerate(rolled.states):
        found[:, row, 0] = start
        if states:
            found[:, row, 1 : 1 + len(states)] = halves(np.array(states))
    return found[0], found[1]


def decided_by(prompts: Sequence[Rolled]) -> list[list[float]]:
    """Share of the rewards' variance within prompts that the value explains at each place."""
    explained, variance = [], []
    for rolled in prompts:
        one, other = true_values(rolled)
        explained.append(((one - one[:, :1]) * (other - other[:, :1])).sum(axis=0))
        rewards = own_rewards(rolled)
        variance.append(((rewards - one[:, 0]) * (rewards - other[:, 0])).sum())
    return [ratio(own, np.array(variance)) for own in np.array(explained)[:, 1:].T]


def samples_of(prompts: Sequence[Rolled]) -> Samples:
    """The groups of the prompts, in the form in which baselines are measured."""
    rows = [ids for rolled in prompts for ids in rolled.completion_ids[:GROUP]]
    lengths = np.array([len(ids) for ids in rows])
    ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    rewards = np.array([own_rewards(rolled) for rolled in prompts])
    return Samples(ids, lengths, rewards, GROUP)


def leave_one_out(rewards: np.ndarray) -> np.ndarray:
    """Mean of the others of a group, `(P, G)`."""
    return (rewards.sum(axis=1, keepdims=True) - rewards) / (rewards.shape[1] - 1)


def at_places(prompts: Sequence[Rolled], values: np.ndarray) -> np.ndarray:
    """Values of `(R, T)` tokens at the start and at each place, `(P, G, 8)`; anything after the end."""
    columns = np.minimum([0, *PLACES], values.shape[1] - 1)
    return values[:, columns].reshape(len(prompts), GROUP, -1)


def squared_errors(prompts: Sequence[Rolled], estimates: np.ndarray) -> np.ndarray:
    """Squared errors of `(P, G, 8)` estimates against the true values, summed over the group: `(P, 8)`."""
    found = []
    for own, rolled in zip(estimates, prompts, strict=True):
        one, other = true_values(rolled)
        found.append(((own - one) * (own - other) * running(rolled)).sum(axis=0))
    return np.array(found)


def rollout_errors(prompts: Sequence[Rolled], k: int) -> np.ndarray:
    """Squared errors of the mean of `k` fresh continuations, as VinePPO's, `(P, 8)`: the variance of a mean of k."""
    found = np.zeros((len(prompts), 1 + len(PLACES)))
    for own, rolled in zip(found, prompts, strict=True):
        for states in rolled.states:
            variances = [np.var(rewards, ddof=1) for rewards in (rolled.rewards[GROUP:], *states)]
            own[: len(variances)] += np.array(variances) / k
    return found


def compared(errors: dict[str, np.ndarray], against: str) -> dict[str, dict]:
    """Errors over those of one estimate: over all places with an interval, and at each; NaN where no text goes on."""
    base, found = errors[against], {}
    for name, own in errors.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            by_place = own.sum(axis=0) / base.sum(axis=0)
        found[name] = {"error": ratio(own.sum(axis=1), base.sum(axis=1)), "by_place": by_place.tolist()}
    return found


def td_products(values: np.ndarray, reward: float, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    True TD errors of a completion's tokens: one estimate that ranks them, and the products of two others.

    Args:
        values (`np.ndarray` of shape `(T - 1, K)`): Rewards of the continuations after each token but the last.
        reward (`float`): That of the completion.
        start (`np.ndarray` of shape `(K',)`): Those of other completions of the prompt.
    """
    parts = zip(np.array_split(values, 3, axis=1), np.array_split(start, 3), strict=True)
    td = [np.diff([first.mean(), *own.mean(axis=1), reward]) for own, first in parts]
    return td[0], td[1] * td[2]


def concentration(prompts: Sequence[Rolled]) -> dict[str, list[float]]:
    """
    Share of the squared true TD errors in the largest tokens of a completion, and by where tokens are.

    Which tokens are the largest is told by continuations that their size is not measured with, so it is told wrong at
    times: the shares of the largest are lower bounds.
    """
    chosen = [rolled for rolled in prompts if rolled.tokens]
    sums = []
    for rolled in chosen:
        own = (
            {f"largest {n}": 0.0 for n in LARGEST} | {f"quarter {n}": 0.0 for n in range(1, PARTS + 1)} | {"all": 0.0}
        )
        for values, reward in zip(rolled.tokens, rolled.rewards, strict=False):
            rank, squares = td_products(np.array(values), reward, np.array(rolled.rewards[GROUP:]))
            order = np.argsort(-np.abs(rank))
            for n in LARGEST:
                own[f"largest {n}"] += squares[order[:n]].sum()
            for index, square in enumerate(squares):
                own[f"quarter {index * PARTS // len(squares) + 1}"] += square
            own["all"] += squares.sum()
        sums.append(own)
    if not sums:
        return {}
    total = np.array([own["all"] for own in sums])
    return {name: ratio(np.array([own[name] for own in sums]), total) for name in sums[0] if name != "all"}
