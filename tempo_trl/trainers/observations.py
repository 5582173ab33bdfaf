"""Keys of what an agent saw before each turn: an environment's own, a function's of the answer, or its tokens."""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from trl import GRPOTrainer

from tempo_trl.credit.anchors import key_of
from tempo_trl.runs.messages import answer_text, answers_before_turns
from tempo_trl.trainers.failures import Failures
from tempo_trl.trainers.prompt_keys import image_bytes, images_in
from tempo_trl.trainers.scored_rows import ScoredRows

ObservationKeyFunc = Callable[[str], str]


def observed_before_steps(
    trainer: GRPOTrainer,
    rows: ScoredRows,
    turns: torch.Tensor,
    steps: torch.Tensor,
    prompts: torch.Tensor,
    failures: Failures,
) -> torch.Tensor:
    """
    Keys of what was seen before each step, `(B, N)`, int64; 0 where a row has no such step.

    An environment's own key comes first, then `observation_key_func` of the answer, then the answer's tokens and
    images. Where a step follows another within a turn, the key is one of all tokens so far.

    Args:
        trainer ([`~tempo_trl.TokenCreditTrainer`]):
            The trainer.
        rows ([`ScoredRows`]):
            This rank's rows.
        turns, steps (`torch.Tensor` of shape `(B, T)`, int64):
            Turn and step of each token; -1 for tokens of tools and environments and for padding.
        prompts (`torch.Tensor` of shape `(B,)`, int64):
            Numbers that are equal for equal prompts.
        failures ([`Failures`]):
            Keeps an error of `observation_key_func`.
    """
    ids = rows.output["completion_ids"].cpu().numpy().astype(np.int64)
    keys = torch.zeros(len(ids), int(steps.max()) + 1, dtype=torch.int64)
    for row, prompt in enumerate(prompts.tolist()):
        so_far, done = hashlib.blake2b(prompt.to_bytes(8, "little", signed=True) + b"so far", digest_size=8), 0
        answers = answers_before_turns(rows.completions[row])
        with failures.of("`observation_key_func`"):
            for n, (end, start) in enumerate(step_begins(steps[row].numpy())):
                if n and end == start:
                    so_far.update(ids[row, done:start].tobytes())
                    done, keys[row, n] = start, int.from_bytes(so_far.digest(), "little", signed=True)
                    continue
                turn = int(turns[row, start])
                own, answer = rows.state_keys.get((row, turn)), answers[turn] if turn < len(answers) else []
                keys[row, n] = key_of(prompt, _seen(trainer, own, turn, answer, ids[row, end:start]))
    return keys


def step_begins(steps: np.ndarray) -> list[tuple[int, int]]:
    """Of each step of a row: the column after the previous step, and the step's first column."""
    sampled = np.flatnonzero(steps >= 0)
    first = np.flatnonzero(np.diff(steps[sampled], prepend=-1))
    ends = np.where(first > 0, sampled[first - 1] + 1, 0)
    return list(zip(ends.tolist(), sampled[first].tolist(), strict=True))


def _seen(trainer: GRPOTrainer, own: str | None, turn: int, answer: list[dict], tokens: np.ndarray) -> bytes:
    """What identifies the state before a turn."""
    if own is not None:
        return b"environment" + own.encode()
    if turn == 0:
        return tokens.tobytes()
    images = b""
    for image in images_in(answer):
        images = hashlib.blake2b(images + image_bytes(image), digest_size=8).digest()
    if trainer.observation_key_func is None:
        return tokens.tobytes() + images
    # A `rollout_func` may have environments of its own: then there are no messages, and tokens only.
    text = answer_text(answer) if answer else _text_of(trainer, tokens)
    return b"text" + _checked_key(trainer.observation_key_func, text).encode() + images


def _text_of(trainer: GRPOTrainer, tokens: np.ndarray) -> str:
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return tokenizer.decode(tokens, skip_special_tokens=True)


def _checked_key(key_func: ObservationKeyFunc, text: str) -> str:
    key = key_func(text)
    if not isinstance(key, str):
        raise ValueError(
            f"`observation_key_func` must return a string, got {type(key).__name__} for the observation {text!r}. "
            "Return the part of the text that identifies the state."
        )
    return key
