"""The rewards of completions with turns, their whole returns, and the scale that returns from a turn on have."""

from typing import NamedTuple

import torch

from tempo_trl.credit.advantages import EPSILON, nanstd
from tempo_trl.credit.turns import turn_returns


class TurnRewards(NamedTuple):
    """
    The rewards of completions, from which returns are computed.

    Args:
        reward (`torch.Tensor` of shape `(R,)`):
            Reward of the whole completion; NaN where unscorable.
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Turn of each token, starting at 0, -1 for tokens of no turn and for padding; or one column per turn.
        steps (`torch.Tensor` of shape `(R, N)`, *optional*):
            Reward of each turn; NaN counts as 0. None if turns have no rewards.
        size (`torch.Tensor` of shape `(R,)`, *optional*):
            Size of the sum that `reward` is, to which its rounding is relative
            ([`~tempo_trl.credit.advantages.are_equal`]). Defaults to that of the reward.
        step_sizes (`torch.Tensor` of shape `(R, N)`, *optional*):
            The same of `steps`.
    """

    reward: torch.Tensor
    turns: torch.Tensor
    steps: torch.Tensor | None = None
    size: torch.Tensor | None = None
    step_sizes: torch.Tensor | None = None

    @property
    def sizes(self) -> "TurnRewards":
        """The sizes of these rewards. Their returns are the sizes that the rounding is relative to."""
        size = self.reward.abs() if self.size is None else self.size
        of_steps = None if self.steps is None else self.steps.abs()
        return TurnRewards(size, self.turns, of_steps if self.step_sizes is None else self.step_sizes)

    def returns(self, gamma: float = 1.0) -> torch.Tensor:
        """Return from each turn on, `(R, N)`, float64: [`~tempo_trl.credit.turns.turn_returns`]."""
        return turn_returns(self.steps, self.turns, self.reward, gamma)

    def whole_returns(self) -> torch.Tensor:
        """
        Undiscounted return of each completion, `(R,)`, float64; NaN where unscorable.

        A completion without any turn has its own reward. It has no credit, because it has no token of a turn, but it
        counts among the completions of its group: in their mean, in their standard deviation, and as one of the
        others. Without rewards per turn it counts in the same way.
        """
        returns, reward = self.returns(), self.reward.double()
        first = returns[:, 0] if returns.shape[1] else reward
        return torch.where(first.isnan(), reward, first)


def return_scale(rewards: TurnRewards, gamma: float = 1.0) -> torch.Tensor:
    r"""
    What returns from a turn on are divided by with `scale_rewards="batch"`: a number, float64.

    $$\max \left( \mathrm{std}_i(W_i), \; \sqrt{\mathrm{mean}_{i,n} (G_{i,n} - G_{i,n+1})^2} \right) + 10^{-4}$$

    W is the whole return, and its standard deviation (ddof 1) is what GRPO divides by. The second number says how far
    a return changes from one turn to the next: by the turn's reward, and by the discount. Without rewards per turn and
    without a discount it is 0, and the scale is GRPO's. With them returns from a turn on can differ although all whole
    returns are equal; divided by 1e-4 they would have no bound.

    Args:
        rewards ([`TurnRewards`]):
            Rewards of the rows of all ranks.
        gamma (`float`, *optional*, defaults to `1.0`):
            Discount per turn.
    """
    spread = nanstd(rewards.whole_returns()[None])[0, 0]
    change = _changes(rewards, gamma).square().nanmean().nan_to_num(0.0).sqrt()
    return torch.maximum(spread, change) + EPSILON


def _changes(rewards: TurnRewards, gamma: float) -> torch.Tensor:
    """Return from each turn on minus that from the next one, the reward after the last: `(R, N)`, NaN for no turn."""
    returns, reward = rewards.returns(gamma), rewards.reward.double()[:, None]
    following = torch.cat([returns[:, 1:], reward], dim=1)[:, : returns.shape[1]]
    return returns - torch.where(following.isnan(), reward, following)
