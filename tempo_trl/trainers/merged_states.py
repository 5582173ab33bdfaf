"""A warning if most turns of a group are one state, because the same was observed before them."""

import warnings

import numpy as np
import torch
from trl import GRPOTrainer

from tempo_trl.runs.messages import answer_text, answers_before_turns
from tempo_trl.runs.token_text import cut, one_line
from tempo_trl.trainers.batch import Batch
from tempo_trl.trainers.observations import before_turns
from tempo_trl.trainers.scored_rows import ScoredRows

# With at least three later turns per completion, a state that holds over half of them is one to which completions
# come back: if each came to it once, it would hold a third at most.
LEAST_COMPLETIONS, LEAST_TURNS, LARGEST_SHARE = 4, 3, 0.5
SHOWN = 60  # characters of an answer


def without_own_keys(batch: Batch, rows: ScoredRows) -> torch.Tensor:
    """The rows whose environments give no keys of their own, `(R,)`, bool. A group has environments of one kind."""
    size, first = batch.num_generations, rows.place.own.start
    keyed = {(first + row) // size for row, _ in rows.state_keys}
    return torch.tensor([row // size not in keyed for row in range(len(batch.lengths))])


class MergedStates:
    """
    The warning, given once per run.

    Args:
        trainer ([`~tempo_trl.TokenCreditTrainer`]):
            The trainer.
    """

    def __init__(self, trainer: GRPOTrainer):
        self._trainer, self._warned = trainer, False

    def warn(self, batch: Batch, rows: ScoredRows, sums: dict[str, tuple[float, float]]) -> None:
        """
        Warn if one state holds most turns.

        Args:
            batch ([`Batch`]): The scored batch.
            rows ([`ScoredRows`]): This rank's rows, for an example.
            sums (`dict[str, tuple[float, float]]`): Numerators and denominators of `tempo/*` over all ranks.
        """
        if self._warned or "largest_state" not in sums or batch.num_generations < LEAST_COMPLETIONS:
            return
        (inside, turns), (_, completions) = sums["largest_state"], sums["turns"]
        if turns < LEAST_TURNS * completions or inside <= LARGEST_SHARE * turns:
            return
        self._warned = True
        if self._trainer.accelerator.is_main_process:
            warnings.warn(
                f"One state holds most turns of a group: {inside:,.0f} of {turns:,.0f} turns after the first "
                f"({inside / turns:.0%}) are in the largest state of their group, because the same was observed just "
                f"before them{_example(batch, rows)}. Credit compares them as visits of one state. If the situations "
                "differ, let the answer name the state, give the environment a method `_state_key`, or keep in "
                "`observation_key_func` what tells states apart. This warning is given once.",
                UserWarning,
                stacklevel=2,
            )


def _example(batch: Batch, rows: ScoredRows) -> str:
    """The answer before most later turns of this rank, in words; empty if there are no messages."""
    later = before_turns(batch)[rows.place.own].numpy()[:, 1:]
    states, counts = np.unique(later[later != 0], return_counts=True)
    if not len(states):
        return ""
    row, turn = np.argwhere(later == states[counts.argmax()])[0].tolist()
    answers = answers_before_turns(rows.completions[row])[turn + 1 : turn + 2]
    return f", such as {cut(one_line(answer_text(answers[0])), SHOWN)!r}" if answers else ""
