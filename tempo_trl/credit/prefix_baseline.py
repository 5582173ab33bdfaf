"""Prefix baselines: every token's outcome against what the other completions say about the state before it.

The method is ours, no paper's. Indices as in `advantages.py`: column t of a (B, T) tensor is the token that leads from
the state after t tokens to the state after t + 1; its baseline belongs to the state before it.

No token is visited by a Python loop. Along a row the other completions leave one after the other, each where the
prefix that it shares with the row ends. The columns between two of these places are a stage. On stage p, when p of
them have left, the baseline is level(p) + gap(p) * weight(t): the weight decays geometrically (fixed shrinkage) or is
the correlation of completions that share t tokens (adaptive).
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch

from tempo_trl.credit.advantages import _check_rewards, flat_groups, outcome_advantages, prefix_tree
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pairwise_lcp, predictor
from tempo_trl.credit.prefix_tree import PrefixTree


def prefix_baselines(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    rewards: torch.Tensor,
    num_generations: int,
    shrinkage: float | PrefixCovariance,
    branches: torch.Tensor | None = None,
    prompts: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Baseline of every token: the value of the state before it, estimated from the other completions of the group only.

    With a number k it walks down the path. The first token's baseline is the mean of the others' rewards; after that

    $$b_{i,t} = \frac{\sum_{j \in O(s_{i,t})} r_j + k \, b_{i,t-1}}{|O(s_{i,t})| + k}$$

    where O(s) are the others that pass through state s or end there. k = 0 is their plain mean, the last one known
    once they have all left; k = inf is RLOO, the mean of all others on every token.

    With a [`PrefixCovariance`] C it is the best linear unbiased predictor of the state's value. K(j, l) is C of the
    tokens that j and l share, and v on the diagonal, over the others; c(j) = C(min(tokens that i and j share, t)).

    $$b_{i,t} = m + c^T K^{-1} (r - m 1), \quad m = \frac{1^T K^{-1} r}{1^T K^{-1} 1}$$

    C = 0 is RLOO. Either way b is linear in the rewards with weights that add up to 1, and never looks at the
    completion's own reward, so that subtracting it leaves the policy gradient unbiased.

    Completions of a grown tree that share a sampled token are not independent, so the others of a token are then the
    completions outside its branch: those not grown through the sample that the token belongs to (`branches`).

    Unscorable completions (reward NaN) are nobody's others. Where no other is left at all (a group of one, all others
    unscorable, a segment that the whole group was grown through) no baseline is known without looking inside; there b
    is the completion's own reward (0 for NaN), so that r - b is 0 and the token is not trained.

    Args:
        completion_ids (`torch.Tensor` of shape `(B, T)`, integer):
            Sampled token ids, right-padded with anything, the EOS id included: padding is never read.
        completion_lengths (`torch.Tensor` of shape `(B,)`, integer):
            True lengths in tokens, 0 to T.
        rewards (`torch.Tensor` of shape `(B,)`):
            Rewards, in any unit; NaN marks an unscorable completion.
        num_generations (`int`):
            Completions in a group.
        shrinkage (`float` or [`PrefixCovariance`]):
            k, at least 0, infinity included; or the covariance, fitted on earlier batches.
        branches (`torch.Tensor` of shape `(B, T)`, integer, *optional*):
            Id, at least 0, of the sampled segment that each token belongs to; read within the rows' lengths only. Rows
            of a group with the same id at a token were grown through this segment and share it from its first to its
            last token. Without it every row is a sample of its own.
        prompts (`torch.Tensor` of shape `(B,)`, integer, *optional*):
            Equal for the completions of a group that go on from the same prompt. The prompt then counts as a token
            before the first: all others speak up to it, those of the same prompt after it.

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the device of `completion_ids`, 0 past each row's length.

    Raises:
        ValueError: if a rank, length, dtype or the number of rows does not fit, for a negative or NaN shrinkage, and
            for rows that share a segment but not its tokens.

    Note:
        Every token is a state: where others stay on for a run of tokens, a fixed k's baseline moves on towards their
        plain mean with each of them, and k is soon forgotten. A covariance does not fade.

        Unbiased on a grown tree takes more than `branches`. What the completions through a segment weigh together in
        the loss must not depend on the segment's own tokens, and neither may what is sampled outside of it: a sibling
        whose first token is forced to differ from the segment's is not independent of that token.
    """
    tree = prefix_tree(completion_ids, completion_lengths, num_generations, prompts)
    _check_rewards(rewards, len(completion_ids))
    baselines = tree_baselines(tree, rewards, completion_ids.shape[1], shrinkage, branches)
    return torch.from_numpy(baselines).float().to(completion_ids.device)


def prefix_baseline_advantages(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    rewards: torch.Tensor,
    num_generations: int,
    *,
    shrinkage: float | PrefixCovariance,
    scale_rewards: str = "group",
    branches: torch.Tensor | None = None,
    prompts: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Advantage of every token over its prefix baseline.

    $$A_{i,t} = \frac{r_i - b_{i,t}}{\mathrm{scale}}$$

    with b of [`prefix_baselines`] and the scale of [`tempo_advantages`]. A flat group (equal rewards), a group of one
    and an unscorable completion (reward NaN) get exactly 0.

    Args:
        completion_ids, completion_lengths, rewards, num_generations, shrinkage, branches, prompts:
            As in [`prefix_baselines`].
        scale_rewards (`str`, *optional*, defaults to `"group"`):
            `"group"`, `"batch"` or `"none"`, with the meaning of TRL's `GRPOConfig.scale_rewards`. A scale that is
            estimated from the same rewards is not unbiased, here as in GRPO; `"none"` is.

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the device of `completion_ids`, 0 past each row's length.

    Raises:
        ValueError: as [`prefix_baselines`]; also for an unknown scale.
    """
    tree = prefix_tree(completion_ids, completion_lengths, num_generations, prompts)
    _check_rewards(rewards, len(completion_ids))
    outcome = outcome_advantages(rewards, num_generations, scale_rewards)
    advantages = baseline_tokens(tree, outcome, completion_ids.shape[1], shrinkage, branches)
    return advantages.to(completion_ids.device)


def baseline_tokens(
    tree: PrefixTree,
    outcome: torch.Tensor,
    width: int,
    shrinkage: float | PrefixCovariance,
    branches: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Spread outcome advantages over tokens and take their prefix baselines off: $A_{i,t} = g_i - b_{i,t}(g)$.

    The weights of b add up to 1, so whatever affine map of a group's rewards g is, no mean or standard deviation has
    to be known here.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(B,)`):
            Outcome advantages g, equal within a group exactly where its rewards are equal; NaN where unscorable.
        width (`int`):
            Columns T of the result.
        shrinkage, branches:
            As in [`prefix_baselines`].

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the CPU; 0 past each row's length, for unscorable completions and
        in groups whose outcomes are all equal.
    """
    outcome = outcome.detach().cpu().double()
    silent = flat_groups(outcome, tree.num_generations).repeat_interleave(tree.num_generations) | outcome.isnan()
    baselines = tree_baselines(tree, outcome, width, shrinkage, branches)
    heard = (np.arange(width) < tree.lengths[:, None]) & ~silent.numpy()[:, None]
    return torch.from_numpy(np.where(heard, outcome.numpy()[:, None] - baselines, 0.0).astype(np.float32))


def tree_baselines(
    tree: PrefixTree,
    rewards: torch.Tensor,
    width: int,
    shrinkage: float | PrefixCovariance,
    branches: torch.Tensor | None = None,
) -> np.ndarray:
    """Prefix baselines of a tree's rows, `(R, width)`, float64: see [`prefix_baselines`]."""
    _check_shrinkage(shrinkage)
    rewards, shared = rewards.detach().cpu().double().numpy(), pairwise_lcp(tree)
    walks, runs = _own_walks(tree) if branches is None else _branch_walks(tree, shared, width, branches)
    walks.others &= ~np.isnan(rewards).reshape(-1, tree.num_generations)[walks.row // tree.num_generations]
    tokens = _walk_baselines(walks, shared, np.nan_to_num(rewards), shrinkage)
    baselines = np.zeros((len(rewards), width))
    baselines[np.arange(width) < tree.lengths[:, None]] = tokens if runs is None else tokens[runs]
    if not walks.others.any(axis=1).all():
        baselines = np.where(np.isnan(baselines), np.nan_to_num(rewards)[:, None], baselines)
    return baselines


@dataclass
class _Walks:
    """Walk q goes down row `row[q]`, meets `others[q]` of its group, and tells tokens `begin[q]` to `end[q] - 1`."""

    row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    others: np.ndarray


def _own_walks(tree: PrefixTree) -> tuple[_Walks, None]:
    """One walk a row, over all its tokens: their baselines come in reading order."""
    rows, size = np.arange(len(tree.order)), tree.num_generations
    others = np.arange(size) != rows[:, None] % size
    return _Walks(rows, np.zeros_like(rows), tree.lengths, others), None


def _branch_walks(
    tree: PrefixTree, shared: np.ndarray, width: int, branches: torch.Tensor
) -> tuple[_Walks, np.ndarray]:
    """One walk a sampled segment, and the index of each row's tokens, in reading order, among those of the walks."""
    size, ids = tree.num_generations, _check_branches(branches, tree.lengths, width)
    starts = np.arange(width) < tree.lengths[:, None]
    starts[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    row, begin = np.nonzero(starts)
    end = np.append(begin, 0)[1:]  # where the row's next segment begins
    end = np.where(end > 0, end, tree.lengths[row])

    segment = np.stack([row // size, ids[row, begin]])
    _, first, walk = np.unique(segment, axis=1, return_index=True, return_inverse=True)
    walks = _Walks(row[first], begin[first], end[first], np.ones((len(first), size), dtype=bool))
    _check_shared(walks, walk, row, begin, end, shared)
    walks.others[walk, row % size] = False

    length = walks.end - walks.begin
    offset = np.cumsum(length) - length
    return walks, _ranges(offset[walk], length[walk])


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """start[0], start[0] + 1, ... (`length[0]` numbers), start[1], ..."""
    return np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)


def _walk_baselines(
    walks: _Walks, shared: np.ndarray, rewards: np.ndarray, shrinkage: float | PrefixCovariance
) -> np.ndarray:
    """Baselines of the walks' tokens, one walk after the other, float64; NaN on walks that meet nobody."""
    size = shared.shape[1]
    group = walks.row // size
    rewards = np.where(walks.others, rewards.reshape(-1, size)[group], 0.0)
    met = np.where(walks.others, shared.reshape(-1, size)[walks.row], -1)  # gone before the first token: not met
    who = np.argsort(met, axis=1, kind="stable")
    left = np.take_along_axis(met, who, axis=1)
    if isinstance(shrinkage, PrefixCovariance):
        mean, dual = predictor(shrinkage.correlation(shared), group, walks.others, rewards)
        stages = _predicted(mean, np.take_along_axis(dual, who, axis=1), left, shrinkage)
    else:
        among = np.take_along_axis(walks.others, who, axis=1)
        stages = _shrunk(np.take_along_axis(rewards, who, axis=1), among, left, shrinkage)
    return _told(walks, left, *stages)


def _told(
    walks: _Walks, left: np.ndarray, level: np.ndarray, gap: np.ndarray, weight: Callable[..., np.ndarray]
) -> np.ndarray:
    """The baselines level + gap * weight(stage, column) of the walks' tokens, one walk after the other."""
    first = np.clip(np.pad(left + 1, ((0, 0), (1, 0))), walks.begin[:, None], walks.end[:, None])
    length = np.diff(first, axis=1, append=walks.end[:, None]).ravel()
    tokens, moving = np.repeat(level.ravel(), length), np.flatnonzero(gap)
    stage = np.repeat(moving, length[moving])
    column = _ranges(first.ravel()[moving], length[moving])
    at = _ranges((np.cumsum(length) - length)[moving], length[moving])
    tokens[at] += gap.ravel()[stage] * weight(stage, column)
    return tokens


def _shrunk(
    rewards: np.ndarray, met: np.ndarray, left: np.ndarray, shrinkage: float
) -> tuple[np.ndarray, np.ndarray, Callable[..., np.ndarray]]:
    """Fixed shrinkage: (level, gap, weight) of the stages.

    While n others stay, each token takes the baseline n / (n + k) of the way that is left to their mean.
    """
    count = _of_those_left(met)
    with np.errstate(invalid="ignore"):  # 0 / 0 once all have left
        mean = _of_those_left(rewards) / count
        kept = np.where((count > 0) & (shrinkage < np.inf), shrinkage / (count + shrinkage), 1.0)
    since = np.pad(left, ((0, 0), (1, 0)), constant_values=-1)  # the last column before the stage
    level, gap, baseline = np.empty_like(mean), np.empty_like(mean), mean[:, 0]
    for stage in range(mean.shape[1]):
        if stage:
            baseline = baseline + gap[:, stage - 1] * kept[:, stage - 1] ** (since[:, stage] - since[:, stage - 1])
        level[:, stage] = np.where(kept[:, stage] < 1, mean[:, stage], baseline)
        gap[:, stage] = baseline - level[:, stage]
        baseline = level[:, stage]
    return level, gap, lambda stage, column: kept.ravel()[stage] ** (column - since.ravel()[stage])


def _predicted(
    mean: np.ndarray, dual: np.ndarray, left: np.ndarray, covariance: PrefixCovariance
) -> tuple[np.ndarray, np.ndarray, Callable[..., np.ndarray]]:
    """Best linear unbiased prediction: (level, gap, weight) of the stages.

    Who has left speaks through what it shared with the row for good, who is still there through the t tokens so far.
    """
    gone = np.pad(np.cumsum(dual * covariance.correlation(left), axis=1), ((0, 0), (1, 0)))
    told = covariance.correlation(np.arange(left.max(initial=-1) + 1))  # from the last place on all have left
    return mean[:, None] + gone, _of_those_left(dual), lambda _, column: told[column]


def _of_those_left(numbers: np.ndarray) -> np.ndarray:
    """Sum at each stage over those who have not left yet: `(Q, G)` in order of leaving to `(Q, G + 1)`."""
    return np.pad(np.cumsum(numbers[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))


def _check_shrinkage(shrinkage: float | PrefixCovariance) -> None:
    if not isinstance(shrinkage, PrefixCovariance) and not (isinstance(shrinkage, Real) and shrinkage >= 0):
        raise ValueError(
            f"`shrinkage` must be a number of at least 0 or a PrefixCovariance, got {shrinkage!r}. Infinity is RLOO."
        )


def _check_branches(branches: torch.Tensor, lengths: np.ndarray, width: int) -> np.ndarray:
    if branches.shape != (len(lengths), width) or branches.is_floating_point():
        raise ValueError(
            f"`branches` must be ({len(lengths)}, {width}) integers, one for each token, got shape "
            f"{tuple(branches.shape)} and dtype {branches.dtype}."
        )
    ids = branches.detach().cpu().numpy().astype(np.int64)
    if (ids < 0)[np.arange(width) < lengths[:, None]].any():
        raise ValueError("`branches` must be at least 0 on every token within its row's length; got a negative id.")
    return ids


def _check_shared(
    walks: _Walks, walk: np.ndarray, row: np.ndarray, begin: np.ndarray, end: np.ndarray, shared: np.ndarray
) -> None:
    """Every row with a segment must have the segment's tokens, where the segment's first row has them."""
    size = shared.shape[1]
    common = shared[row // size, row % size, walks.row[walk] % size]
    wrong = (begin != walks.begin[walk]) | (end != walks.end[walk]) | (common < end)
    if wrong.any():
        this = int(row[wrong][0])
        raise ValueError(
            f"`branches` must give rows the same id only where they share a sampled segment, from its first to its "
            f"last token; rows {walks.row[walk[wrong][0]]} and {this} do not. Where one of them goes on and others "
            "part, a new segment begins."
        )
