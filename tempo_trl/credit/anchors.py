"""States that come back: completions of a group that differ in their tokens but reach the same state.

An agent's state before a turn is known by what it has just seen: its last observation, or its last k + 1 observations.
Completions that visit the same state tell how good it is, although they share no prefix. Indices: column n of an
`(R, N)` tensor is the state before turn n, and the return from it. The rows of a group are adjacent.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import torch

from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance, pair_products, predictor
from tempo_trl.credit.turns import turn_ends, turn_starts

SAME_PROMPT, SAME_OBSERVATION = 1, 2  # levels of agreement; 0 is a different prompt


def observation_keys(completion_ids: torch.Tensor, steps: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    """
    A number for what the policy has just seen before each turn: equal observations have equal numbers, on every rank.

    Only tokens before the turn are read, so a key does not depend on the turn's action. Where nothing was observed,
    because a step follows another within a turn, it is a number for all tokens so far.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`, integer):
            Token ids.
        steps (`torch.Tensor` of shape `(R, T)`, int64):
            Turn, or step within a turn, of each token; -1 for tokens of tools and environments and for padding.
        prompts (`torch.Tensor` of shape `(R,)`, int64):
            Numbers that are equal for equal prompts.

    Returns:
        `torch.Tensor` of shape `(R, N)`, int64: 64 bits of a hash of the prompt and of the tokens between the previous
        turn and this one; 0 where a row has no such turn.
    """
    ids = completion_ids.cpu().numpy().astype(np.uint64)
    starts, ends = turn_starts(steps.cpu()).numpy(), turn_ends(steps.cpu()).numpy()
    row, step = np.nonzero(starts >= 0)
    start, end = starts[row, step], np.where(step > 0, ends[row, step - 1] + 1, 0)
    inner = (step > 0) & (end == start)  # nothing was observed between two steps
    seen = _hashes(ids, row, end, start)
    if inner.any():
        seen[inner] = _mixed(_hashes_so_far(ids, row[inner], start[inner]))  # unlike that of an equal observation
    keys = np.zeros(starts.shape, dtype=np.uint64)
    keys[row, step] = _mixed(seen + _mixed(prompts.cpu().numpy().astype(np.uint64)[row]))
    return torch.from_numpy(keys.view(np.int64))


def _hashes(ids: np.ndarray, row: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """A number for each run of ids `ids[row, begin:end]`: a sum over its tokens and their places within the run."""
    count = end - begin
    total = np.concatenate([[0], np.cumsum(count)])
    place = np.arange(total[-1]) - np.repeat(total[:-1], count)
    found = ids.ravel()[np.repeat(row * ids.shape[1] + begin, count) + place]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(found + _mixed(place.astype(np.uint64))))])
    return sums[total[1:]] - sums[total[:-1]]


def _hashes_so_far(ids: np.ndarray, row: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The same for each beginning `ids[row, :end]`, in time that does not grow with their number."""
    return np.cumsum(_mixed(ids + _mixed(np.arange(ids.shape[1], dtype=np.uint64))), axis=1)[row, end - 1]


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers after which sums of them are as good as random (SplitMix64)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def key_of(prompt: int, seen: bytes) -> int:
    """64 bits of a hash of what was observed after a prompt."""
    digest = hashlib.blake2b(prompt.to_bytes(8, "little", signed=True) + seen, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def state_labels(observations: torch.Tensor, num_generations: int, history: int = 0) -> np.ndarray:
    """
    Labels of states: equal where completions of a group have seen the same last 1, 2, ..., `history` + 1 observations.

    Args:
        observations (`torch.Tensor` of shape `(R, N)`, int64):
            Keys of what was seen before each turn; 0 where a row has no such turn.
        num_generations (`int`):
            Completions in a group.
        history (`int`, *optional*, defaults to `0`):
            Observations before the last one to compare, too.

    Returns:
        `np.ndarray` of shape `(history + 1, R, N)`, int64; -1 where a row has no such turn. Before the first
        observation all histories are the same.
    """
    keys = observations.cpu().numpy()
    group = np.broadcast_to((np.arange(len(keys)) // num_generations)[:, None], keys.shape)
    last = _labels(group, keys)
    found = [last]
    for back in range(1, history + 1):
        earlier = np.full_like(last, -1)
        earlier[:, back:] = last[:, : max(last.shape[1] - back, 0)]
        found.append(_labels(found[-1], earlier))
    return np.where(keys == 0, -1, np.stack(found))


def _labels(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Numbers for pairs: equal where both members are."""
    pairs = np.stack([first.ravel(), second.ravel()])
    return np.unique(pairs, axis=1, return_inverse=True)[1].reshape(first.shape)


def visits(labels: np.ndarray) -> np.ndarray:
    """Number of visits of the state before each turn, its own among them; 0 where a row has no such turn."""
    _, state, count = np.unique(labels, return_inverse=True, return_counts=True)
    return np.where(labels >= 0, count[state.reshape(labels.shape)], 0)


def anchor_sums(
    observations: torch.Tensor, num_generations: int, owned: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """
    Numerator and denominator of the metrics of states, over the owned rows.

    `turns`: turns of a completion, mean. `anchor_states`: states after an observation that at least two completions of
    a group visit, per group. `anchor_visits`: other completions of the group that visit the state before a turn, mean
    over turns after an observation.

    Args:
        observations (`torch.Tensor` of shape `(R, N)`, int64):
            Keys of what was seen before each turn; 0 where a row has no such turn.
        num_generations (`int`):
            Completions in a group.
        owned (`torch.Tensor` of shape `(R,)`, bool):
            Rows to sum over: whole groups.
    """
    labels = state_labels(observations, num_generations)[0][owned.numpy()]
    row, later = np.nonzero(labels[:, 1:] >= 0)
    state = labels[row, later + 1]
    visitors = np.unique(np.stack([state, row]), axis=1)[0]
    seen, inverse = np.unique(state, return_inverse=True)
    count = np.bincount(np.searchsorted(seen, visitors), minlength=len(seen))
    return {
        "turns": (float((labels >= 0).sum()), float(len(labels))),
        "anchor_states": (float((count > 1).sum()), len(labels) / num_generations),
        "anchor_visits": (float((count[inverse] - 1).sum()), float(len(state))),
    }


def relative_returns(
    returns: torch.Tensor, labels: np.ndarray, normalize: bool, epsilon: float = 1e-6
) -> torch.Tensor:
    r"""
    Returns relative to those of all visits of the same state (equation 6 of https://huggingface.co/papers/2505.10978).

    $$A_n = \frac{G_n - \mathrm{mean}(G)}{F}$$

    over all visits of the state before turn n in the group, its own among them. F is their standard deviation (ddof 1)
    plus epsilon, or 1. A state that is visited once has 0.

    Args:
        returns (`torch.Tensor` of shape `(R, N)`):
            Return from each turn on; NaN where unscorable.
        labels (`np.ndarray` of shape `(R, N)`, int64):
            Equal for visits of the same state, -1 where a row has no such turn ([`state_labels`]).
        normalize (`bool`):
            Whether F is the standard deviation.

    Returns:
        `torch.Tensor` of shape `(R, N)`, float32; 0 where there is no return.
    """
    values = returns.double().cpu().numpy()
    used = (labels >= 0) & ~np.isnan(values)
    state, given = np.unique(labels[used], return_inverse=True)[1], values[used]
    count = np.bincount(state)
    relative = given - (np.bincount(state, given) / count)[state]
    if normalize:
        variance = np.bincount(state, np.square(relative)) / np.maximum(count - 1, 1)
        relative = relative / (np.sqrt(variance)[state] + epsilon)
    found = np.zeros(values.shape)
    found[used] = np.where(count[state] > 1, relative, 0.0)
    return torch.from_numpy(found).float()


class Agreement(NamedTuple):
    """
    How closely the completions of a group come to the state before each turn.

    Args:
        level (`np.ndarray` of shape `(R, N, G)`, int64):
            Closest agreement of each completion of the group with the state: 0 another prompt, 1 the same prompt, 2
            the same last observation, 3 and more the same last observations, and at the top the same tokens. 0 where a
            row has no such turn.
        visit (`np.ndarray` of shape `(R, N, G)`, int64):
            The first turn of that completion at which it agrees so. 0 below level 2.
    """

    level: np.ndarray
    visit: np.ndarray


def agreements(labels: np.ndarray, starts: np.ndarray, shared: np.ndarray) -> Agreement:
    """
    Agreement of each completion of a group with each state of the others.

    Args:
        labels (`np.ndarray` of shape `(history + 1, R, N)`, int64):
            [`state_labels`].
        starts (`np.ndarray` of shape `(R, N)`, int64):
            First column of each turn, -1 where a row has fewer ([`~tempo_trl.credit.turns.turn_starts`]).
        shared (`np.ndarray` of shape `(P, G, G)`, int64):
            Tokens that each pair of rows of a group shares, -1 if their prompts differ
            ([`~tempo_trl.credit.prefix_covariance.pairwise_lcp`]).

    Returns:
        [`Agreement`]
    """
    size, (rows, turns) = shared.shape[1], starts.shape
    level, visit = np.zeros((2, rows, turns, size), dtype=np.int64)
    for group, own in enumerate(slice(first, first + size) for first in range(0, rows, size)):
        level[own] = np.where(shared[group] >= 0, SAME_PROMPT, 0)[:, None, :]
        for compared, seen in enumerate(labels[:, own]):
            equal = seen[:, :, None, None] == seen[None, None]  # (G, N, G, N)
            equal[:, 0] = False  # before its first turn a completion has seen its prompt alone
            met = equal.any(axis=3)
            level[own][met], visit[own][met] = SAME_OBSERVATION + compared, equal.argmax(axis=3)[met]
        met = (shared[group][:, None, :] >= starts[own][:, :, None]) & (starts[own][:, :, None] == starts[own].T[None])
        met[:, 0] = False
        own_turn = np.broadcast_to(np.arange(turns)[None, :, None], met.shape)
        level[own][met], visit[own][met] = SAME_OBSERVATION + len(labels), own_turn[met]
    there = (starts >= 0)[:, :, None]
    return Agreement(np.where(there, level, 0), np.where(there, visit, 0))


def visited_returns(returns: np.ndarray, agreement: Agreement) -> np.ndarray:
    """
    What each completion of the group earned from its first visit of the state before each turn, `(R, N, G)`.

    A completion that does not visit the state counts with its whole return, less what the row had earned before the
    turn. The row itself has its own return from the turn on.

    Args:
        returns (`np.ndarray` of shape `(R, N)`, float64):
            Undiscounted return from each turn on; NaN where unscorable, and where a row has no such turn.
        agreement ([`Agreement`]):
            Agreement of the completions.
    """
    rows, _, size = agreement.level.shape
    first = np.arange(rows) // size * size
    member = first[:, None, None] + np.arange(size)
    before = returns[:, :1] - returns
    found = np.where(
        agreement.level >= SAME_OBSERVATION,
        returns[member, agreement.visit],
        returns[member, 0] - before[:, :, None],
    )
    found[np.arange(rows), :, np.arange(rows) - first] = returns
    return found


def anchor_baselines(returns: np.ndarray, agreement: Agreement, covariance: PrefixCovariance) -> np.ndarray:
    r"""
    Baseline of every turn: the value of the state before it, estimated from the other completions of the group.

    The best linear unbiased predictor in the returns y of the others from their first visits, if rewards of
    completions that agree at level l have covariance C(l): those at levels a and b agree with each other at min(a, b).

    $$b_n = m + c^T K^{-1} (y - m 1), \quad K_{jl} = C(\min(a_j, a_l)), \quad c_j = C(a_j)$$

    with v on the diagonal of K. C = 0 is RLOO. The completion's own return is never used, in none of its visits, so
    subtracting the baseline leaves the policy gradient unbiased.

    Args:
        returns (`np.ndarray` of shape `(R, N)`, float64):
            Undiscounted return from each turn on; NaN where unscorable, and where a row has no such turn.
        agreement ([`Agreement`]):
            Agreement of the completions.
        covariance ([`PrefixCovariance`]):
            C by level of agreement instead of by shared tokens, learned from earlier batches.

    Returns:
        `np.ndarray` of shape `(R, N)`, float64; the own return where there are no others, so that the difference is 0.
    """
    size = agreement.level.shape[2]
    baselines = np.empty_like(returns)
    for own, level, earned, known in _groups(returns, agreement):
        correlations = covariance.correlation(np.minimum(level[:, :, None], level[:, None, :]))
        known = known & (np.arange(size) != np.repeat(np.arange(size), returns.shape[1])[:, None])
        mean, dual = predictor(correlations, np.arange(len(level)), known, np.where(known, earned, 0.0))
        predicted = mean + (covariance.correlation(level) * dual).sum(axis=1)
        baselines[own] = predicted.reshape(size, -1)
    return np.where(np.isnan(baselines), returns, baselines)


def lambda_advantages(errors: np.ndarray, trace_lambda: float) -> np.ndarray:
    r"""
    Generalized advantages of turns (https://huggingface.co/papers/1506.02438) from their errors over a baseline.

    $$A_n = e_n - (1 - \lambda) \sum_{l \ge 1} \lambda^{l - 1} e_{n + l}, \quad e_n = G_n - b_n$$

    This is $\sum_l \lambda^l \delta_{n + l}$ with $\delta_n = r_n + b_{n + 1} - b_n$, where the return of the last
    turn is its reward. Lambda 1 gives e: the own return decides, and the gradient is unbiased. A smaller lambda puts
    the baselines of later states instead of what happened after them: less noise, and a bias where they are
    wrong.

    Args:
        errors (`np.ndarray` of shape `(R, N)`, float64):
            e; NaN where there is no return.
        trace_lambda (`float`):
            Lambda, 0 to 1.

    Returns:
        `np.ndarray` of shape `(R, N)`, float64, 0 where there is no return.
    """
    errors = np.nan_to_num(errors)
    advantages = np.zeros((len(errors), errors.shape[1] + 1))
    for n in reversed(range(errors.shape[1])):
        later = errors[:, n + 1] if n + 1 < errors.shape[1] else 0.0
        advantages[:, n] = errors[:, n] - later + trace_lambda * advantages[:, n + 1]
    return advantages[:, :-1]


def anchor_statistics(returns: np.ndarray, agreement: Agreement, owned: np.ndarray) -> PairStatistics:
    """
    Statistics from which the covariance by level of agreement is learned: products of a return and another's.

    Args:
        returns, agreement:
            As in [`anchor_baselines`].
        owned (`np.ndarray` of shape `(R,)`, bool):
            Rows whose states are counted.

    Returns:
        [`PairStatistics`] with levels in place of numbers of shared tokens, and states in place of rows.
    """
    size, total = agreement.level.shape[2], PairStatistics()
    for own, level, earned, _ in _groups(returns, agreement):
        state = np.flatnonzero(np.repeat(owned[own], returns.shape[1]) & ~np.isnan(returns[own]).ravel())
        if not len(state):
            continue
        pairs = pair_products(torch.from_numpy(earned[state].ravel()), size)
        itself = np.arange(len(state)), state // returns.shape[1]
        products, known, level = pairs.products[itself], pairs.known[itself], level[state]
        levels, index = np.unique(level[known], return_inverse=True)
        closest = np.where(known, level, -1).max(axis=1)[known.any(axis=1)]
        total = total + PairStatistics(
            levels,
            np.bincount(index, products[known], len(levels)),
            np.bincount(index, minlength=len(levels)),
            np.bincount(np.searchsorted(levels, closest), minlength=len(levels)),
            float(pairs.variances[known.any(axis=1)].sum()),
            int(known.any(axis=1).sum()),
        )
    return total


def _groups(returns: np.ndarray, agreement: Agreement):
    """Of each group: its rows, and `(G * N, G)` levels, returns from the first visits, and whether they are known."""
    rows, _, size = agreement.level.shape
    earned = visited_returns(returns, agreement)
    for own in (slice(first, first + size) for first in range(0, rows, size)):
        level, given = agreement.level[own].reshape(-1, size), earned[own].reshape(-1, size)
        yield own, level, given, ~np.isnan(given)
