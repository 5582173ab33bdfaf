"""Turns of an agent, or steps of a solution: where they begin, returns from each of them, and values on their tokens.

Indices: column n of an `(R, N)` tensor is turn n, and the return from it on.
"""

import torch

from tempo_trl.credit.checks import check_number


def turn_starts(turns: torch.Tensor) -> torch.Tensor:
    """
    First column of each turn.

    Args:
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token, starting at 0; -1 for tokens of tools and environments and for padding.

    Returns:
        `torch.Tensor` of shape `(R, N)`, int64, where N is the largest number of turns; -1 where a row has fewer.
    """
    ends = turn_ends(turns.flip(1))
    return (turns.shape[1] - 1 - ends).masked_fill(ends < 0, -1)


def turn_ends(turns: torch.Tensor) -> torch.Tensor:
    """Last column of each turn, `(R, N)`; -1 where a row has fewer. As [`turn_starts`]."""
    rows, width = turns.shape
    count = int(turns.max()) + 1 if turns.numel() else 0
    ends = torch.full((rows, count + 1), -1)  # the last column takes the tokens of no turn
    columns = torch.arange(width).expand(rows, -1)
    return ends.scatter_reduce_(1, torch.where(turns >= 0, turns, count), columns, "amax")[:, :count]


def first_steps(turns: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """First step of each turn, `(R, N)`, int64; -1 where a row has no such turn."""
    starts = turn_starts(turns)
    return steps.gather(1, starts.clamp(min=0)).masked_fill(starts < 0, -1)


def turn_returns(
    step_rewards: torch.Tensor | None, turns: torch.Tensor, reward: torch.Tensor, gamma: float = 1.0
) -> torch.Tensor:
    r"""
    Discounted return from each turn on, with the reward at the end.

    $$G_n = \sum_{m \ge n} \gamma^{m - n} r_m + \gamma^{N - 1 - n} R$$

    Without rewards per turn it is the discounted reward. docs/guides/agents.md says which baselines of these returns
    are unbiased.

    Args:
        step_rewards (`torch.Tensor` of shape `(R, N)`, *optional*):
            Reward of each turn; NaN counts as 0.
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token, starting at 0; -1 for tokens of tools and environments and for padding.
        reward (`torch.Tensor` of shape `(R,)`):
            Reward R of the whole completion; NaN where unscorable.
        gamma (`float`, *optional*, defaults to `1.0`):
            Discount per turn, 0 to 1.

    Returns:
        `torch.Tensor` of shape `(R, N)`, float64, so that equal rewards in another order have equal returns; NaN where
        a row has no such turn, and for unscorable rows.

    Raises:
        ValueError: if a shape does not fit, or `gamma` is not between 0 and 1.
    """
    count = turns.amax(dim=1) + 1 if turns.shape[1] else torch.zeros(len(turns), dtype=torch.long)
    most = int(count.max()) if len(count) else 0
    if reward.shape != (len(turns),):
        raise ValueError(f"`reward` must be ({len(turns)},), one per completion, got shape {tuple(reward.shape)}.")
    if step_rewards is not None and (step_rewards.ndim != 2 or step_rewards.shape[1] < most):
        raise ValueError(
            f"`step_rewards` must be ({len(turns)}, {most}), one per turn, got shape {tuple(step_rewards.shape)}."
        )
    check_number("gamma", gamma, 1)
    returns = torch.full((len(turns), most + 1), torch.nan, dtype=torch.float64)
    rewards = returns.new_zeros(len(turns), most) if step_rewards is None else step_rewards.double().nan_to_num(0.0)
    for n in reversed(range(most)):
        following = torch.where(n == count - 1, reward.double(), gamma * returns[:, n + 1])
        returns[:, n] = rewards[:, n] + following
    return returns[:, :most]


def spread_turns(values: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """The value of each token's turn, `(R, T)`, from `(R, N)` values; 0 for tokens of no turn."""
    return torch.nn.functional.pad(values, (1, 0)).gather(1, turns + 1)


def steps_of(turns: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """
    Steps that turns are cut into: a step ends with its turn, or with a token that `ends` it.

    Args:
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token, starting at 0; -1 for tokens of tools and environments and for padding.
        ends (`torch.Tensor` of shape `(R, T)`, bool):
            Tokens that end a step.

    Returns:
        `torch.Tensor` of shape `(R, T)`, int64: step of each token, starting at 0; -1 where `turns` is.
    """
    before = torch.nn.functional.pad(turns, (1, 0), value=-1)[:, :-1]
    ended = torch.nn.functional.pad(ends, (1, 0), value=False)[:, :-1]
    begins = (turns >= 0) & ((turns != before) | ended)
    return (begins.cumsum(dim=1) - 1).masked_fill(turns < 0, -1)
