"""Keys of states that environments give themselves, read while TRL plays their episodes."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from trl import GRPOTrainer

if TYPE_CHECKING:
    from tempo_trl.trainers.credit_log import Failures


STATE_KEY = "_state_key"  # private, because TRL makes an environment's public methods tools


class StateKeys:
    """
    The environments' own keys, read just before each turn is sampled.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        failures ([`Failures`]):
            Keeps an error of a `_state_key`.
    """

    def __init__(self, trainer: GRPOTrainer, failures: "Failures"):
        self._trainer, self._failures = trainer, failures
        self._turn, self._conversations, self._sizes = 0, None, []
        self.found: dict[tuple[int, int], bytes] = {}  # by row and turn

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Reads the keys of all turns that are sampled in the block, by TRL or by a method of a user's subclass."""
        generate, play = self._trainer._generate_single_turn, self._trainer._tool_call_loop

        def generate_single_turn(*args, **kwargs):
            with self._failures.of(f"`{STATE_KEY}`"):
                self._read()
            return generate(*args, **kwargs)

        def tool_call_loop(prompts, prompt_ids, completion_ids, completions, *args):
            self._conversations, self._sizes = completions, list(map(len, completions))
            return play(prompts, prompt_ids, completion_ids, completions, *args)

        changes = {"_generate_single_turn": generate_single_turn, "_tool_call_loop": tool_call_loop}
        with patch.multiple(self._trainer, **changes):
            yield

    def _read(self) -> None:
        environments = self._trainer.environments or ()
        self._turn += self._conversations is not None  # each call within TRL's loop is the next turn
        for row in self._in_play(len(environments)):
            if hasattr(environments[row], STATE_KEY):
                self.found[row, self._turn] = _checked_key(environments[row], row, self._turn)

    def _in_play(self, rows: int) -> list[int]:
        """The rows whose next turn TRL samples: at first all, then those with a new answer at the end."""
        if self._conversations is None:
            return list(range(rows))
        before, self._sizes = self._sizes, list(map(len, self._conversations))
        grown = [row for row in range(rows) if self._sizes[row] > before[row]]
        return [row for row in grown if self._conversations[row][-1]["role"] != "assistant"]


def _checked_key(environment: object, row: int, turn: int) -> bytes:
    """The key in bytes: equal where Python says so, 1 and True as well, but not 1 and "1"."""
    key = getattr(environment, STATE_KEY)()
    if isinstance(key, str):
        return b"text of an environment: " + key.encode(errors="surrogatepass")
    if isinstance(key, Integral | np.bool_):
        return b"number of an environment: " + str(int(key)).encode()
    if inspect.iscoroutine(key):
        key.close()  # else Python warns that it was never awaited
    raise ValueError(
        f"{type(environment).__name__}.{STATE_KEY} must return a str or an int that identifies the state, got "
        f"{type(key).__name__} before turn {turn} of row {row}. Return what tells states apart as text, from a method "
        "that is not async."
    )
