"""How closely completions of a group come to each other's states, and the baselines of turns that follow from it.

The states of a batch are listed one after another, S of them, each before a turn of a completion. Indices: column k of
an `(S, G)` array is completion k of the state's group.
"""

from typing import NamedTuple

import numpy as np

from tempo_trl.credit.level_covariance import Deviations, LevelCovariance, PairStatistics

SAME_PROMPT, SAME_OBSERVATION = 1, 2  # levels of agreement; 0 is a different prompt


class States(NamedTuple):
    """
    The states before the turns of a batch, in reading order, and how closely the completions of a group come to them.

    Args:
        row, turn (`np.ndarray` of shape `(S,)`, int64):
            Completion and turn that a state comes before.
        level (`np.ndarray` of shape `(S, G)`, int64):
            Closest agreement of each completion of the group with the state: 0 another prompt, 1 the same prompt, 2
            the same last observation, 3 and more the same last observations, and at the top the same tokens.
        visit (`np.ndarray` of shape `(S, G)`, int64):
            The first turn of that completion at which it agrees so. 0 below level 2.
    """

    row: np.ndarray
    turn: np.ndarray
    level: np.ndarray
    visit: np.ndarray

    @property
    def own(self) -> np.ndarray:
        """Place of each state's own completion in its group, `(S,)`."""
        return self.row % self.level.shape[1]

    @property
    def group(self) -> np.ndarray:
        """Rows of each state's group, `(S, G)`."""
        return (self.row - self.own)[:, None] + np.arange(self.level.shape[1])

    @property
    def others(self) -> np.ndarray:
        """Which completions of its group are not a state's own, `(S, G)`, bool."""
        return np.arange(self.level.shape[1]) != self.own[:, None]


def agreements(labels: np.ndarray, starts: np.ndarray, shared: np.ndarray) -> States:
    """
    Agreement of each completion of a group with each state of the group.

    Args:
        labels (`np.ndarray` of shape `(history + 1, R, N)`, int64):
            [`~tempo_trl.credit.anchors.state_labels`].
        starts (`np.ndarray` of shape `(R, N)`, int64):
            First column of each turn, -1 where a row has fewer ([`~tempo_trl.credit.turns.turn_starts`]).
        shared (`np.ndarray` of shape `(P, G, G)`, int64):
            Tokens that each pair of rows of a group shares, -1 if their prompts differ
            ([`~tempo_trl.credit.prefix_covariance.pairwise_lcp`]).

    Returns:
        [`States`]
    """
    row, turn = np.nonzero(starts >= 0)
    common = shared.reshape(len(starts), shared.shape[1])[row]
    level = np.where(common >= 0, SAME_PROMPT, 0)
    states = States(row, turn, level, np.zeros_like(level))
    later = (turn > 0)[:, None]  # before its first turn a completion has seen its prompt alone
    for compared, of_turn in enumerate(labels):
        first = _first_visits(of_turn, shared.shape[1])[of_turn[row, turn]]
        _raise(states, later & (first >= 0), SAME_OBSERVATION + compared, first)
    begin = starts[row, turn][:, None]
    same_tokens = (common >= begin) & (starts[states.group, turn[:, None]] == begin)
    _raise(states, later & same_tokens, SAME_OBSERVATION + len(labels), turn[:, None])
    return states


def _first_visits(labels: np.ndarray, size: int) -> np.ndarray:
    """First turn of each completion of a group that has each label, -1 where none has: `(labels + 1, G)`."""
    row, turn = np.nonzero(labels >= 0)
    first = np.full((labels.max(initial=-1) + 2, size), -1)  # the last row is that of label -1
    first[labels[row, turn][::-1], row[::-1] % size] = turn[::-1]  # the earliest is written last, and stays
    return first


def _raise(states: States, where: np.ndarray, level: int, visit: np.ndarray) -> None:
    """Set the agreement of some completions to a closer one."""
    np.copyto(states.level, level, where=where)
    np.copyto(states.visit, visit, where=where)


def visited_returns(returns: np.ndarray, whole: np.ndarray, states: States) -> np.ndarray:
    """
    What each completion of the group earned from its first visit of a state, `(S, G)`; NaN where unscorable.

    A completion that does not visit the state counts with its whole return, less what the state's own completion had
    earned before the turn. The own completion has its return from the turn on.

    Args:
        returns (`np.ndarray` of shape `(R, N)`, float64):
            Undiscounted return from each turn on; NaN where unscorable, and where a row has no such turn.
        whole (`np.ndarray` of shape `(R,)`, float64):
            Undiscounted return of each completion, also of those without a turn; NaN where unscorable.
        states ([`States`]):
            The states, and the visits of the completions.
    """
    own = returns[states.row, states.turn]
    earned_before = whole[states.row] - own
    found = np.where(
        states.level >= SAME_OBSERVATION,
        returns[states.group, states.visit],
        whole[states.group] - earned_before[:, None],
    )
    return np.where(states.others, found, own[:, None])


def anchor_baselines(earned: np.ndarray, states: States, covariance: LevelCovariance) -> np.ndarray:
    r"""
    Baseline of every state: its value, estimated from the other completions of the group.

    The best linear unbiased predictor in the returns y of the others from their first visits, if rewards of
    completions that agree at level l have covariance C(l): those at levels a and b agree with each other at min(a, b).

    $$b = m + c^T K^{-1} (y - m 1), \quad K_{jl} = C(\min(a_j, a_l)), \quad c_j = C(a_j)$$

    with v on the diagonal of K. The completion's own return is never used, in none of its visits, so subtracting the
    baseline leaves the policy gradient unbiased. Without rewards per turn C = 0 is RLOO; with them the others that
    visit the state count with their returns from there on.

    Args:
        earned (`np.ndarray` of shape `(S, G)`, float64):
            [`visited_returns`].
        states ([`States`]):
            The states.
        covariance ([`~tempo_trl.credit.level_covariance.LevelCovariance`]):
            C by level of agreement, learned from earlier batches.

    Returns:
        `np.ndarray` of shape `(S,)`, float64; the own return where there are no others, so that the difference is 0.
        Where the others have all earned the same, it is exactly that.
    """
    known = states.others & ~np.isnan(earned)
    least = np.where(known, earned, np.inf).min(axis=1, initial=np.inf)
    above = np.where(known, earned - least[:, None], 0.0)
    predicted = least + _predicted(above, states.level, known, covariance)
    return np.where(known.any(axis=1), predicted, _own(earned, states))


def _predicted(rewards: np.ndarray, level: np.ndarray, known: np.ndarray, covariance: LevelCovariance) -> np.ndarray:
    r"""
    The predictor of [`anchor_baselines`], `(S,)`, without solving a system: K is a chain of nested blocks.

    Let c(a) be C(a) / v. Those that agree at a level or closer tell of the value at that level with a precision and a
    precision-weighted sum of rewards, computed from the closest level down. From the loosest level up, the estimate
    then moves towards what each level tells.
    """
    levels, count, total = _by_level(rewards, level, known)
    correlation = covariance.correlation(levels)
    step = np.diff(correlation, prepend=0.0)
    precision, weighted = np.zeros((2, len(levels) + 1, len(rewards)))
    for a in reversed(range(len(levels))):
        precision[a] = precision[a + 1] + count[a] / (1.0 - correlation[a])
        weighted[a] = weighted[a + 1] + total[a] / (1.0 - correlation[a])
        kept = 1.0 / (1.0 + step[a] * precision[a])
        precision[a], weighted[a] = precision[a] * kept, weighted[a] * kept
    value = weighted[0] / np.where(precision[0] > 0, precision[0], 1.0)
    for a in range(len(levels)):
        value = value + step[a] * (weighted[a] - precision[a] * value)
    return value


def _by_level(rewards: np.ndarray, level: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All levels, ascending, and the number and the sum of known rewards at each: `(L,)`, and `(L, S)` twice."""
    shape = level.max(initial=-1) + 1, len(level)
    cell = (level * len(level) + np.arange(len(level))[:, None])[known]
    count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    return np.arange(shape[0]), count, np.bincount(cell, rewards[known], shape[0] * shape[1]).reshape(shape)


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


def anchor_statistics(earned: np.ndarray, states: States, counted: np.ndarray) -> PairStatistics:
    """
    Statistics from which the covariance by level of agreement is learned: products of a return and another's.

    Args:
        earned, states:
            As in [`anchor_baselines`].
        counted (`np.ndarray` of shape `(R,)`, bool):
            Rows whose states are counted.

    Returns:
        [`~tempo_trl.credit.level_covariance.PairStatistics`], in which a state and its visitors are a group.
    """
    used = counted[states.row] & ~np.isnan(_own(earned, states))
    groups, own = Deviations.of(earned[used]), states.own[used]
    known = groups.scorable & states.others[used]
    level, varied = states.level[used], known.any(axis=1)
    products = groups.products_with(np.take_along_axis(groups.deviation, own[:, None], axis=1))
    closest = np.where(known, level, -1).max(axis=1, initial=-1)[varied]
    return PairStatistics.of(level[known], products[known], closest, groups.variance[varied].sum(), varied.sum())


def _own(earned: np.ndarray, states: States) -> np.ndarray:
    """What each state's own completion earned from the turn on, `(S,)`."""
    return np.take_along_axis(earned, states.own[:, None], axis=1)[:, 0]
