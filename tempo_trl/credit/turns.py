"""Turns of an agent: where they begin, returns from each of them, and values per turn spread over its tokens."""

import torch


def turn_starts(turns: torch.Tensor) -> torch.Tensor:
    """
    First column of each turn.

    Args:
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token, starting at 0; -1 for tokens of tools and environments and for padding.

    Returns:
        `torch.Tensor` of shape `(R, N)`, int64, where N is the largest number of turns; -1 where a row has fewer.
    """
    rows, width = turns.shape
    count = int(turns.max()) + 1 if turns.numel() else 0
    starts = torch.full((rows, count + 1), width)  # the last column takes the tokens of no turn
    columns = torch.arange(width).expand(rows, -1)
    starts.scatter_reduce_(1, torch.where(turns >= 0, turns, count), columns, "amin")
    starts = starts[:, :count]
    return starts.masked_fill(starts == width, -1)


def turn_returns(
    step_rewards: torch.Tensor | None, turns: torch.Tensor, outcome: torch.Tensor, gamma: float = 1.0
) -> torch.Tensor:
    count = turns.amax(dim=1) + 1
    returns = torch.full((len(turns), int(count.max())), torch.nan)
    for n in reversed(range(returns.shape[1])):
        reward = torch.zeros(len(turns)) if step_rewards is None else step_rewards[:, n].nan_to_num(0.0)
        later = returns[:, n + 1] if n + 1 < returns.shape[1] else torch.full_like(reward, torch.nan)
        returns[:, n] = torch.where(n == count - 1, reward + outcome.float(), reward + gamma * later)
    return returns


def spread_turns(values: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    return values.gather(1, turns.clamp(min=0)).masked_fill(turns < 0, 0.0)
