"""What the methods for agents share: returns from each turn, labels of states, metrics and configuration fields."""

from dataclasses import dataclass, field

import numpy as np
import torch

from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.anchors import state_labels
from tempo_trl.credit.turns import turn_returns
from tempo_trl.trainers.batch import Batch


def whole_outcome(batch: Batch, scale_rewards: str) -> torch.Tensor:
    """GRPO's advantage of each completion's undiscounted return, `(R,)`: the outcome, and the rewards per turn."""
    if batch.step_rewards is None:
        return batch.outcome
    whole = turn_returns(batch.step_rewards, batch.steps, batch.rewards, 1.0)[:, 0]
    return outcome_advantages(whole, batch.num_generations, scale_rewards).float()


def labels_of(batch: Batch, history: int = 0) -> np.ndarray:
    """Labels of the states of a batch, `(history + 1, R, N)`: [`~tempo_trl.credit.anchors.state_labels`]."""
    return state_labels(batch.observations, batch.num_generations, history)


@dataclass
class AnchorFields:
    """
    Configuration of what a state is.

    Args:
        anchor_history (`int`, *optional*):
            Observations before the last one that a state has, too.
    """

    anchor_history: int = field(
        default=0, metadata={"help": "Observations before the last one that must be equal, too."}
    )

    def check_anchors(self) -> None:
        """Validate the settings.

        Raises:
            ValueError: `anchor_history` is negative.
        """
        if self.anchor_history < 0:
            raise ValueError(f"`anchor_history` must be at least 0, got {self.anchor_history!r}. Raise it.")
