"""Keys of what an agent saw before each turn: an environment's own, a function's of the text, or its tokens."""

import hashlib
from collections.abc import Callable

import torch
from trl import GRPOTrainer

from tempo_trl.credit.anchors import key_of, observation_keys, observed_from
from tempo_trl.credit.turns import turn_starts
from tempo_trl.trainers.prompt_keys import image_bytes, images_in

STATE_KEY = "_state_key"  # private, because TRL makes an environment's public methods tools

ObservationKeyFunc = Callable[[str], str]


def with_state_keys(trainer: GRPOTrainer, generate: Callable) -> tuple[Callable, list[list]]:
    """
    A trainer's method that generates one turn, and the environments' own keys before each turn, which it appends to.

    Entry n of the list has a key for each completion, None where its environment has no method `_state_key`. Every
    completion that generates turn n does so in call n.
    """
    before: list[list] = []

    def generate_one_turn(*args, **kwargs):
        methods = [getattr(environment, STATE_KEY, None) for environment in trainer.environments or ()]
        before.append([None if method is None else str(method()) for method in methods])
        return generate(*args, **kwargs)

    return generate_one_turn, before


class Observed:
    """
    Keys of what was seen before each turn of a batch.

    An environment's own key comes first, then `key_func` of the observation's text, then its tokens and images. A
    failure of `key_func` or of an environment's key is kept in `failure`, because other ranks wait for this one's
    rows.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        of_environments (`list[list]`):
            The environments' own keys, from [`with_state_keys`].
        key_func (`Callable[[str], str]`, *optional*):
            Maps the text of an observation to what identifies the state.
    """

    def __init__(self, trainer: GRPOTrainer, of_environments: list[list], key_func: ObservationKeyFunc | None = None):
        self._tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        self._of_environments, self._key_func = of_environments, key_func
        self.failure: Exception | None = None

    def __call__(
        self,
        completion_ids: torch.Tensor,
        turns: torch.Tensor,
        steps: torch.Tensor,
        prompts: torch.Tensor,
        completions: list,
    ) -> torch.Tensor:
        """
        The keys, `(B, N)`, int64; 0 where a row has no such turn.

        Args:
            completion_ids, steps, prompts:
                As in [`~tempo_trl.credit.anchors.observation_keys`].
            turns (`torch.Tensor` of shape `(B, T)`, int64):
                Turn of each token; -1 for tokens of tools and environments and for padding.
            completions (`list`):
                Text, or messages, of each completion.
        """
        ids = completion_ids.cpu()
        keys, starts = observation_keys(ids, steps, prompts), turn_starts(steps)
        try:
            for row, step in (keys != 0).nonzero().tolist():
                start = int(starts[row, step])
                if step and turns[row, start - 1] >= 0:  # a step within a turn, before which nothing was observed
                    continue
                seen = self._seen(ids[row], turns[row], start, row, completions[row])
                if seen:
                    keys[row, step] = key_of(int(prompts[row]), seen)
        except Exception as error:
            self.failure = error
        return keys

    def _seen(
        self, ids: torch.Tensor, turns: torch.Tensor, start: int, row: int, completion: str | list[dict]
    ) -> bytes:
        """What identifies the state before a turn, if it is more than the observation's tokens; else empty."""
        n = int(turns[start])
        own = self._of_environments[n][row] if n < len(self._of_environments) and self._of_environments[n] else None
        if own is not None:
            return b"environment" + own.encode()
        images = _images_before_turns(completion)
        shown = images[n] if n < len(images) else b""
        if n == 0 or not (shown or self._key_func):
            return shown
        observed = ids[observed_from(turns.numpy(), start) : start]
        if self._key_func is None:
            return observed.numpy().tobytes() + shown
        text = self._tokenizer.decode(observed, skip_special_tokens=True)
        return b"text" + _checked_text(self._key_func, text).encode() + shown


def _checked_text(key_func: ObservationKeyFunc, text: str) -> str:
    key = key_func(text)
    if not isinstance(key, str):
        raise ValueError(
            f"`observation_key_func` must return a string, got {type(key).__name__} for the observation {text!r}. "
            "Return the part of the text that identifies the state."
        )
    return key


def _images_before_turns(completion: str | list[dict]) -> list[bytes]:
    """A hash of the images that were observed just before each turn, empty where there are none."""
    found, seen = [], b""
    for message in [] if isinstance(completion, str) else completion:
        if message.get("role") == "assistant":
            found.append(seen)
            seen = b""
        else:
            for image in images_in([message]):
                seen = hashlib.blake2b(seen + image_bytes(image), digest_size=8).digest()
    return found
