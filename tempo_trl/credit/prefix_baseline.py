"""Prefix baselines: the value of the state before each token, estimated from the other completions of the group.

The method is ours, not from a paper. Indices as in `advantages.py`: column t of a (B, T) tensor is the token that
leads from the state after t tokens to the state after t + 1; its baseline belongs to the state before it.

There is no Python loop over tokens. Along a row, each other completion leaves where its common prefix with the row
ends. A stage is the range of columns between two such places. On stage p, after p of them have left, the baseline is
level(p) + gap(p) * C(t), with the correlation C of completions that share t tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.credit.advantages import flat_groups, leave_one_out
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pairwise_lcp, predictor
from tempo_trl.credit.prefix_tree import PrefixTree


def baseline_tokens(
    tree: PrefixTree,
    outcome: torch.Tensor,
    width: int,
    covariance: PrefixCovariance,
    branches: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Spread outcome advantages over tokens and subtract their prefix baselines: $A_{i,t} = g_i - b_{i,t}(g)$.

    The weights of b have sum 1. The function therefore works for any affine map g of a group's rewards, without
    knowing its mean or standard deviation.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(B,)`):
            Outcome advantages g, equal within a group exactly where its rewards are equal; NaN where unscorable.
        width (`int`):
            Columns T of the result.
        covariance, branches:
            As in [`tree_baselines`].

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the CPU; 0 past each row's length, for unscorable completions and
        in groups whose outcomes are all equal.
    """
    outcome = outcome.detach().cpu().double()
    untrained = flat_groups(outcome, tree.num_generations).repeat_interleave(tree.num_generations) | outcome.isnan()
    baselines = tree_baselines(tree, outcome, width, covariance, branches)
    trained = (np.arange(width) < tree.lengths[:, None]) & ~untrained.numpy()[:, None]
    return torch.from_numpy(np.where(trained, outcome.numpy()[:, None] - baselines, 0.0).astype(np.float32))


def tree_baselines(
    tree: PrefixTree,
    rewards: torch.Tensor,
    width: int,
    covariance: PrefixCovariance,
    branches: torch.Tensor | None = None,
) -> np.ndarray:
    r"""
    Baseline of every token: the value of the state before it, estimated from the other completions of the group only.

    It is the best linear unbiased predictor of the state's value. Over the others, K(j, l) is C of the number of
    tokens that j and l share, with v on the diagonal; and c(j) = C(min(number of tokens that i and j share, t)).

    $$b_{i,t} = m + c^T K^{-1} (r - m 1), \quad m = \frac{1^T K^{-1} r}{1^T K^{-1} 1}$$

    C = 0 is RLOO. The baseline is linear in the rewards, with weights of sum 1, and does not depend on the
    completion's own reward, so subtracting it leaves the policy gradient unbiased.

    Completions of a grown tree that share a sampled token are not independent. The others of a token are then the
    completions that were not grown through the token's segment (`branches`).

    Unscorable completions (reward NaN) are never among the others. If there are no others (a group of one, all others
    unscorable, a segment that the whole group was grown through), b is the completion's own reward (0 for NaN), so
    that r - b is 0 and the token is not trained.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        rewards (`torch.Tensor` of shape `(B,)`):
            Rewards, in any unit; NaN marks an unscorable completion.
        width (`int`):
            Columns T of the result.
        covariance ([`PrefixCovariance`]):
            C, fitted on earlier batches.
        branches (`torch.Tensor` of shape `(B, T)`, integer, *optional*):
            Id, at least 0, of the sampled segment of each token; ignored after a row's length. Rows of a group with
            the same id at a token were grown through this segment and share it from its first to its last token. By
            default every row is an independent sample.

    Returns:
        `np.ndarray` of shape `(B, T)`, float64, 0 after each row's length.

    Note:
        On a grown tree an unbiased gradient needs more than `branches`: the total weight in the loss of the
        completions through a segment must not depend on the segment's tokens, and neither may the samples outside of
        it. A sibling whose first token is forced to differ from the segment's is not independent of that token.
    """
    rewards, shared = rewards.detach().cpu().double().numpy(), pairwise_lcp(tree)
    paths, runs = _own_paths(tree) if branches is None else _branch_paths(tree, width, branches)
    paths.others &= ~np.isnan(rewards).reshape(-1, tree.num_generations)[paths.row // tree.num_generations]
    tokens = _path_baselines(paths, shared, np.nan_to_num(rewards), covariance)
    baselines = np.zeros((len(rewards), width))
    baselines[np.arange(width) < tree.lengths[:, None]] = tokens[runs]
    if not paths.others.any(axis=1).all():
        baselines = np.where(np.isnan(baselines), np.nan_to_num(rewards)[:, None], baselines)
    return baselines


@dataclass
class _Paths:
    """
    Runs of tokens that have a baseline: path q is tokens `begin[q]` to `end[q] - 1` of row `row[q]`, and `others[q]`
    are the completions of its group that the baselines may use.

    Args:
        row, begin, end (`np.ndarray` of shape `(Q,)`, integer):
            As above.
        others (`np.ndarray` of shape `(Q, G)`, bool):
            Which completions of the row's group may be used.
    """

    row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    others: np.ndarray


def _own_paths(tree: PrefixTree) -> tuple[_Paths, slice]:
    """One path per row, over all its tokens, and which of them make up the rows: all, in their order."""
    rows, size = np.arange(len(tree.order)), tree.num_generations
    others = np.arange(size) != rows[:, None] % size
    return _Paths(rows, np.zeros_like(rows), tree.lengths, others), slice(None)


def _branch_paths(tree: PrefixTree, width: int, branches: torch.Tensor) -> tuple[_Paths, np.ndarray]:
    """One path per sampled segment, and the index of each row's tokens, in reading order, among the paths' tokens."""
    size, ids = tree.num_generations, branches.cpu().numpy()
    starts = np.arange(width) < tree.lengths[:, None]
    starts[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    row, begin = np.nonzero(starts)
    end = np.append(begin, 0)[1:]  # where the row's next segment begins
    end = np.where(end > 0, end, tree.lengths[row])

    segment = np.stack([row // size, ids[row, begin]])
    _, first, path = np.unique(segment, axis=1, return_index=True, return_inverse=True)
    paths = _Paths(row[first], begin[first], end[first], np.ones((len(first), size), dtype=bool))
    paths.others[path, row % size] = False

    length = paths.end - paths.begin
    offset = np.cumsum(length) - length
    return paths, _ranges(offset[path], length[path])


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """start[0], start[0] + 1, ... (`length[0]` numbers), start[1], ..."""
    return np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)


def _path_baselines(
    paths: _Paths, shared: np.ndarray, rewards: np.ndarray, covariance: PrefixCovariance
) -> np.ndarray:
    """Baselines of the paths' tokens, one path after the other, float64; NaN on paths without others."""
    size = shared.shape[1]
    group = paths.row // size
    rewards = np.where(paths.others, rewards.reshape(-1, size)[group], 0.0)
    left, order = _leaving(paths, shared)
    mean, dual = predictor(covariance.correlation(shared), group, paths.others, rewards)
    dual = np.take_along_axis(dual, order, axis=1)
    # A completion that has left counts with all tokens that it shared with the row, a remaining one with t tokens.
    gone = np.pad(np.cumsum(dual * covariance.correlation(left), axis=1), ((0, 0), (1, 0)))
    so_far = covariance.correlation(np.arange(left.max(initial=-1) + 1))  # beyond the last place all have left
    return np.repeat(mean, paths.end - paths.begin) + _token_baselines(paths, left, gone, _of_those_left(dual), so_far)


def _leaving(paths: _Paths, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns after which the others leave each path, ascending, and the order of the rows: `(Q, G)` each."""
    size = shared.shape[1]
    left = np.where(paths.others, shared.reshape(-1, size)[paths.row], -1)  # -1: not used, as if gone from the start
    order = np.argsort(left, axis=1, kind="stable")
    return np.take_along_axis(left, order, axis=1), order


def _token_baselines(
    paths: _Paths, left: np.ndarray, level: np.ndarray, gap: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The baselines level(stage) + gap(stage) * weight(column) of the paths' tokens, one path after the other."""
    first = np.clip(np.pad(left + 1, ((0, 0), (1, 0))), paths.begin[:, None], paths.end[:, None])
    length = np.diff(first, axis=1, append=paths.end[:, None]).ravel()
    tokens, moving = np.repeat(level.ravel(), length), np.flatnonzero(gap)
    stage = np.repeat(moving, length[moving])
    column = _ranges(first.ravel()[moving], length[moving])
    at = _ranges((np.cumsum(length) - length)[moving], length[moving])
    tokens[at] += gap.ravel()[stage] * weight[column]
    return tokens


def _of_those_left(numbers: np.ndarray) -> np.ndarray:
    """Sum over the remaining completions at each stage: `(Q, G)`, in order of leaving, to `(Q, G + 1)`."""
    return np.pad(np.cumsum(numbers[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))


def value_error_sums(
    advantages: torch.Tensor,
    outcome: torch.Tensor,
    loss_mask: torch.Tensor,
    num_generations: int,
    counted: torch.Tensor,
) -> tuple[float, float]:
    r"""
    Numerator and denominator of a baseline's squared error relative to RLOO's.

    $$\frac{\sum_i \mathrm{mean}_t (g_i - b_{i,t})^2}{\sum_i (g_i - m_{-i})^2}$$

    over the counted completions of groups that are not flat, where m is the mean outcome of the others. Below 1 the
    baseline predicts rewards better than the mean of the others does.

    Args:
        advantages (`torch.Tensor` of shape `(R, T)`):
            g - b.
        outcome (`torch.Tensor` of shape `(R,)`):
            Outcome advantages g, NaN where unscorable.
        loss_mask (`torch.Tensor` of shape `(R, T)`, bool):
            Tokens to average over.
        num_generations (`int`):
            Completions in a group.
        counted (`torch.Tensor` of shape `(R,)`, bool):
            Rows to sum over.
    """
    error, tokens = leave_one_out(outcome, num_generations), loss_mask.sum(dim=1)
    differs = ~flat_groups(outcome, num_generations).repeat_interleave(num_generations)
    used = ~error.isnan() & differs & counted & (tokens > 0)
    own = advantages.double().square().mul_(loss_mask).sum(dim=1) / tokens.clamp(min=1)
    return own[used].sum().item(), error[used].square().sum().item()
