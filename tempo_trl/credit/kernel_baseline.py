"""The kernel baseline: the value of a state, predicted from completions with equal or similar prefixes.

The method is ours, not from a paper. Indices as in `prefix_baseline.py`: the baseline in column t of a (B, T) tensor
belongs to the state before token t.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.baseline_paths import BaselinePaths, branch_paths, own_paths, ranges
from tempo_trl.credit.kernel_covariance import (
    DEPTHS,
    FACTORS,
    POWERS,
    KernelCovariance,
    KernelStatistics,
    depth_range,
    kernel_statistics,
)
from tempo_trl.credit.prefix_baseline import predicted_changes
from tempo_trl.credit.prefix_covariance import pairwise_lcp, predictor
from tempo_trl.credit.prefix_tree import PrefixTree

HELD_AT_ONCE = 2**22  # similarities that are raised to powers at once: 32 MiB


@dataclass(frozen=True)
class Similarities:
    """
    How similar the prefixes of completions are to the other completions of their group, at some depths.

    Args:
        depths (`np.ndarray` of shape `(D,)`):
            Numbers of tokens, ascending from 0 ([`~tempo_trl.credit.similarity.Sketch.depths`]).
        values (`np.ndarray` of shape `(P, G, G, D)`, float32):
            Similarities there ([`~tempo_trl.credit.similarity.prefix_similarities`]).
    """

    depths: np.ndarray
    values: np.ndarray


def kernel_baseline_tokens(
    tree: PrefixTree,
    outcome: torch.Tensor,
    width: int,
    similarities: Similarities,
    covariance: KernelCovariance,
    branches: torch.Tensor | None = None,
    learn_from: torch.Tensor | None = None,
) -> tuple[torch.Tensor, KernelStatistics]:
    r"""
    Outcome advantages minus their kernel baselines, $A_{i,t} = g_i - b_{i,t}$, and what this batch teaches.

    $$b_{i,t} = m_0 + f_0(t) \, c(t)^T K_0^{-1} (g - m_0 1) + f_m(t) (m - m_0) + s(t)^T K^{-1} (g - m 1)$$

    over the other completions of the group. With f_0 = 1 the first two terms are the adaptive prefix baseline: K_0 and
    c are the covariances by shared tokens alone, and $m_0 = 1^T K_0^{-1} g / 1^T K_0^{-1} 1$. The others are what
    similarity adds: K(j, l) is the learned covariance k of two completions, m its mean in the same way, and s_j(t) the
    sum of $f_p(t) s_j(t)^p$ ([`KernelCovariance`]). The diagonals are v. Where all completions are alike K is nearly
    singular and m far off; f_m is then learned to be 0.

    The baseline is linear in the others' rewards with weights of sum 1, and independent of the completion's own
    reward, so the policy gradient stays unbiased.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(B,)`):
            Outcome advantages g, equal within a group exactly where its rewards are equal; NaN where unscorable.
        width (`int`):
            Columns T of the result.
        similarities ([`Similarities`]):
            Similarities of the rows of each group.
        covariance ([`KernelCovariance`]):
            Learned from earlier batches.
        branches (`torch.Tensor` of shape `(B, T)`, *optional*):
            Sampled segments of grown trees, as in [`~tempo_trl.credit.prefix_baseline.prefix_baselines`]: a token's
            whole branch is left out of its baseline.
        learn_from (`torch.Tensor` of shape `(B,)`, bool, *optional*):
            Rows that the statistics are taken from; all by default.

    Returns:
        Advantages `(B, T)`, float32, on the CPU; 0 past each row's length, for unscorable completions and in groups
        whose outcomes are all equal. [`KernelStatistics`] for `covariance.update`.
    """
    outcome = outcome.detach().cpu().double()
    size = tree.num_generations
    untrained = flat_groups(outcome, size).repeat_interleave(size) | outcome.isnan()
    prediction = predict(tree, outcome.numpy(), width, similarities, covariance, branches)
    trained = (np.arange(width) < tree.lengths[:, None]) & ~untrained.numpy()[:, None]
    advantages = np.where(trained, outcome.numpy()[:, None] - prediction.baselines(covariance), 0.0)

    learnable = outcome if learn_from is None else outcome.masked_fill(~learn_from, torch.nan)
    statistics = taught(tree, prediction, learnable.masked_fill(untrained, torch.nan), similarities)
    return torch.from_numpy(advantages.astype(np.float32)), statistics


def taught(
    tree: PrefixTree, prediction: "Prediction", outcome: torch.Tensor, similarities: Similarities
) -> KernelStatistics:
    """What a predicted batch teaches: [`KernelStatistics`] of the rows whose outcome is not NaN."""
    sums = prediction.state_sums(outcome.numpy())
    return kernel_statistics(pairwise_lcp(tree), outcome, similarities.values[..., -1], *sums)


def predict(
    tree: PrefixTree,
    rewards: np.ndarray,
    width: int,
    similarities: Similarities,
    covariance: KernelCovariance,
    branches: torch.Tensor | None = None,
) -> "Prediction":
    """The parts of the baselines. Arguments as in [`kernel_baseline_tokens`], with rewards or outcomes in float64."""
    size, shared = tree.num_generations, pairwise_lcp(tree)
    paths, runs = own_paths(tree) if branches is None else branch_paths(tree, shared, width, branches)
    group = paths.row // size
    paths.others &= ~np.isnan(rewards).reshape(-1, size)[group]
    given = np.where(paths.others, np.nan_to_num(rewards).reshape(-1, size)[group], 0.0)
    mean, of_equal = predictor(covariance.correlation(shared), group, paths.others, given)
    kernel = covariance.kernel(shared, similarities.values[..., -1])
    moved, of_similar = predictor(kernel, group, paths.others, given) if covariance.weights.any() else (mean, of_equal)
    return Prediction(
        paths,
        np.arange(tree.lengths.sum()) if runs is None else runs,
        np.arange(width) < tree.lengths[:, None],
        similarities.depths,
        np.nan_to_num(rewards),
        mean,
        moved - mean,
        predicted_changes(paths, shared, of_equal, covariance),
        _similar_changes(paths, of_similar, similarities),
    )


@dataclass
class Prediction:
    """
    The parts of the baselines of the paths, before the factors of depth.

    Args:
        paths ([`~tempo_trl.credit.baseline_paths.BaselinePaths`]):
            The paths, Q in number; their tokens one path after the other are K.
        runs (`np.ndarray` of shape `(tokens,)`):
            Which of the K is the token of a row, in reading order.
        inside (`np.ndarray` of shape `(R, T)`, bool):
            Tokens of the rows.
        depths (`np.ndarray` of shape `(D,)`):
            Depths at which prefixes were compared.
        rewards (`np.ndarray` of shape `(R,)`):
            Rewards, 0 where unscorable.
        mean (`np.ndarray` of shape `(Q,)`):
            m_0; NaN on a path without others.
        moved (`np.ndarray` of shape `(Q,)`):
            m - m_0.
        equal (`np.ndarray` of shape `(K,)`):
            What equal prefixes alone add to m_0.
        similar (`np.ndarray` of shape `(Q, D, P)`):
            What each power of similarity adds, at each depth.
    """

    paths: BaselinePaths
    runs: np.ndarray
    inside: np.ndarray
    depths: np.ndarray
    rewards: np.ndarray
    mean: np.ndarray
    moved: np.ndarray
    equal: np.ndarray
    similar: np.ndarray

    def baselines(self, covariance: KernelCovariance) -> np.ndarray:
        """The baselines, `(R, T)`, float64, 0 past a row's length; the completion's own reward without others."""
        length = self.paths.end - self.paths.begin
        path, column = np.repeat(np.arange(len(length)), length), ranges(self.paths.begin, length)
        similar = (self.similar * covariance.factors(self.depths)[:, 2:]).sum(axis=2)
        known = np.searchsorted(self.depths, column, side="right") - 1  # the last depth that the state has reached
        of_mean, of_equal = covariance.factors(np.arange(self.inside.shape[1]))[:, :2].T
        tokens = self.mean[path] + of_mean[column] * self.moved[path] + of_equal[column] * self.equal
        tokens += similar[path, known]
        baselines = np.zeros(self.inside.shape)
        baselines[self.inside] = tokens[self.runs]
        return np.where(np.isnan(baselines), self.rewards[:, None], baselines)

    def state_sums(self, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        `state_gram` and `state_moments` of [`KernelStatistics`]. A path has weight 1 in each range of depth.

        `rewards`, `(R,)`, are NaN on rows that teach nothing. A path is taught by its first row.
        """
        begin, end = self.paths.begin[:, None], self.paths.end[:, None]
        wanted = rewards[self.paths.row] - self.mean
        asked = (self.depths >= np.maximum(begin, 1)) & (self.depths < end) & ~np.isnan(wanted)[:, None]
        path, index = np.nonzero(asked)
        first = np.cumsum(end - begin) - (end - begin)[:, 0]
        equal = self.equal[first[path] + self.depths[index] - begin[path, 0]]
        predictions = np.column_stack([self.moved[path], equal, self.similar[path, index]])
        place = path * DEPTHS + depth_range(self.depths[index])
        weight = 1.0 / np.bincount(place, minlength=1)[place]
        gram, moments = np.zeros((DEPTHS, FACTORS, FACTORS)), np.zeros((DEPTHS, FACTORS))
        for depth in np.unique(place % DEPTHS):
            here = place % DEPTHS == depth
            weighted = predictions[here] * weight[here, None]
            gram[depth], moments[depth] = weighted.T @ predictions[here], weighted.T @ wanted[path[here]]
        return gram, moments


def _similar_changes(paths: BaselinePaths, dual: np.ndarray, similarities: Similarities) -> np.ndarray:
    """What each power of similarity adds to the mean, `(Q, D, P)`: sum over j of dual_j s_j^p."""
    values, size = similarities.values, dual.shape[1]
    changes = np.empty((len(dual), values.shape[-1], len(POWERS)))
    step = max(1, HELD_AT_ONCE // (size * values.shape[-1]))
    for part in (slice(start, start + step) for start in range(0, len(dual), step)):
        row = paths.row[part]
        own = values[row // size, row % size].astype(float)
        for index, power in enumerate(POWERS):
            changes[part, :, index] = np.matmul(dual[part, None], own**power)[:, 0]
    return changes
