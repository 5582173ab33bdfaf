"""What the methods for agents share: returns and their scale, labels of states, and configuration fields."""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.anchors import state_labels
from tempo_trl.credit.batch import Batch
from tempo_trl.credit.returns import return_scale
from tempo_trl.trainers.agents import first_steps


def whole_outcome(batch: Batch, scale_rewards: str) -> torch.Tensor:
    """
    GRPO's advantage of each completion's undiscounted return, `(R,)`: the outcome, and the rewards per turn.

    Without rewards per turn it is `batch.outcome`.
    """
    if batch.step_rewards is None:
        return batch.outcome
    all_rewards = None if batch.all_rewards is None else batch.all_rewards.whole_returns()
    whole = batch.turn_rewards.whole_returns()
    return outcome_advantages(whole, batch.num_generations, scale_rewards, all_rewards)


def scale_of(batch: Batch, scale_rewards: str, gamma: float = 1.0) -> torch.Tensor:
    """What returns from a turn on are divided by, `(R,)`: [`~tempo_trl.credit.returns.return_scale`] of a batch."""
    return return_scale(batch.turn_rewards, batch.num_generations, scale_rewards, gamma, batch.all_rewards)


def labels_of(batch: Batch, history: int = 0) -> np.ndarray:
    """Labels of the states of a batch, `(history + 1, R, N)`: [`~tempo_trl.credit.anchors.state_labels`]."""
    return state_labels(batch.observations, batch.num_generations, history, first_steps(batch.turns, batch.steps))


@with_help
@dataclass
class StateFields:
    """
    Configuration of what a state is.

    Args:
        state_history (`int`, *optional*):
            Observations before the last one that a state has, too.
    """

    state_history: int = 0

    def check_states(self) -> None:
        """Validate the settings.

        Raises:
            ValueError: `state_history` is negative.
        """
        if self.state_history < 0:
            raise ValueError(f"`state_history` must be at least 0, got {self.state_history!r}. Raise it.")
