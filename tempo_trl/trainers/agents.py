"""What an agent saw before each turn: keys of states, and a warning if most turns of a group are one state."""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from unittest.mock import patch

import numpy as np
import torch
from trl import GRPOTrainer

from tempo_trl.credit.anchors import key_of, observation_keys
from tempo_trl.credit.batch import Batch
from tempo_trl.credit.turns import turn_ends, turn_starts
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.runs.messages import answer_text, answers_before_turns
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import ScoredRows

ObservationKeyFunc = Callable[[str], str]


def sees_answers(trainer: GRPOTrainer) -> bool:
    """Whether the policy may see answers of tools or environments before a turn."""
    own_rollout = trainer.rollout_func is not None and not isinstance(trainer.rollout_func, TreeRollout)
    return bool(trainer.tools or trainer.environment_factories or own_rollout)


def observed_before_steps(
    trainer: GRPOTrainer,
    rows: ScoredRows,
    turns: torch.Tensor,
    steps: torch.Tensor,
    prompts: torch.Tensor,
    report: Report,
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
        report ([`Report`]):
            Keeps an error of `observation_key_func`.
    """
    keys = observation_keys(rows.output["completion_ids"], steps, prompts)
    own, texts, images = rows.state_keys, {}, {}
    if trainer.observation_key_func is not None:
        with report.keeps_errors_of("`observation_key_func`"):
            texts = _texts(trainer, rows, turns)
    with report.keeps_errors_of("reading the images of an answer"):
        images = {place: image for place, image in _images(rows.completions) if place not in own}
    first, before, changed = first_steps(turns, steps).tolist(), prompts.tolist(), keys.numpy()
    for row, step, told in _at_steps(texts | own, first):
        changed[row, step] = key_of(before[row], told)
    for row, step, image in _at_steps(images, first):
        changed[row, step] = key_of(int(changed[row, step]), image)
    return keys


def _texts(trainer: GRPOTrainer, rows: ScoredRows, turns: torch.Tensor) -> dict[tuple[int, int], bytes]:
    """What `observation_key_func` makes of the answers before turns without a key of their own, by row and turn."""
    found, starts, ends = {}, turn_starts(turns).tolist(), turn_ends(turns).tolist()
    for row, completion in enumerate(rows.completions):
        answers = answers_before_turns(completion)
        for turn, start in enumerate(starts[row]):
            if turn and start >= 0 and (row, turn) not in rows.state_keys:
                # A `rollout_func` may have environments of its own: then there are no messages, and tokens only.
                observed = rows.completion_ids[row][ends[row][turn - 1] + 1 : start]
                answer = answers[turn] if turn < len(answers) else []
                text = answer_text(answer) if answer else trainer._tokenizer.decode(observed, skip_special_tokens=True)
                found[row, turn] = b"text of an answer: " + _key_of_text(trainer.observation_key_func, text).encode()
    return found


def _key_of_text(key_func: ObservationKeyFunc, text: str) -> str:
    key = key_func(text)
    if not isinstance(key, str):
        raise ValueError(
            f"`observation_key_func` must return a string, got {type(key).__name__} for the observation {text!r}. "
            "Return the part of the text that identifies the state."
        )
    return key


def _images(completions: list) -> Iterator[tuple[tuple[int, int], bytes]]:
    """A hash of the images of each answer that has any, by row and turn."""
    for row, completion in enumerate(completions):
        shown = any(True for _ in images_in(completion))
        for turn, answer in enumerate(answers_before_turns(completion) if shown else ()):
            if images := list(images_in(answer)):
                yield (row, turn), hashlib.blake2b(b"".join(map(image_bytes, images)), digest_size=8).digest()


def _at_steps(told: dict[tuple[int, int], bytes], first: list[list[int]]) -> Iterator[tuple[int, int, bytes]]:
    """What is told by row and turn, by row and step. Turns that were asked for and sampled no token are left out."""
    for (row, turn), seen in told.items():
        if turn < len(first[row]) and first[row][turn] >= 0:
            yield row, first[row][turn], seen


def first_steps(turns: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """First step of each turn, `(B, N)`, int64; -1 where a row has no such turn."""
    starts = turn_starts(turns)
    return steps.gather(1, starts.clamp(min=0)).masked_fill(starts < 0, -1)


def before_turns(batch: Batch) -> torch.Tensor:
    """
    Key of what was seen before each turn of a batch, `(R, N)`, int64; 0 where a row has no such turn.

    Without `Batch.observations` a row has one turn, and has seen its prompt.
    """
    if batch.observations is None:
        return batch.prompts[:, None]
    first = first_steps(batch.turns, batch.steps)
    return batch.observations.gather(1, first.clamp(min=0)).masked_fill(first < 0, 0)


def images_in(prompt: str | list[dict]) -> Iterator:
    """The images of a prompt's messages, in order."""
    for message in () if isinstance(prompt, str) else prompt:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "image":
                yield part.get("image")


def image_bytes(image) -> bytes:
    if hasattr(image, "tobytes"):  # PIL's, or an array
        return repr((getattr(image, "mode", None), getattr(image, "size", None))).encode() + image.tobytes()
    return repr(image).encode()  # a path or a URL


STATE_KEY = "_state_key"  # private, because TRL makes an environment's public methods tools


class StateKeys:
    """
    The environments' own keys, read just before each turn is sampled.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        report ([`Report`]):
            Keeps an error of a `_state_key`.
    """

    def __init__(self, trainer: GRPOTrainer, report: Report):
        self._trainer, self._report = trainer, report
        self._turn, self._conversations, self._sizes = 0, None, []
        self.found: dict[tuple[int, int], bytes] = {}  # by row and turn

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Reads the keys of all turns that are sampled in the block, by TRL or by a method of a user's subclass."""
        generate, play = self._trainer._generate_single_turn, self._trainer._tool_call_loop

        def generate_single_turn(*args, **kwargs):
            with self._report.keeps_errors_of(f"`{STATE_KEY}`"):
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
                self.found[row, self._turn] = _key_of_state(environments[row], row, self._turn)

    def _in_play(self, rows: int) -> list[int]:
        """The rows whose next turn TRL samples: at first all, then those with a new answer at the end."""
        if self._conversations is None:
            return list(range(rows))
        before, self._sizes = self._sizes, list(map(len, self._conversations))
        grown = [row for row in range(rows) if self._sizes[row] > before[row]]
        return [row for row in grown if self._conversations[row][-1]["role"] != "assistant"]


def _key_of_state(environment: object, row: int, turn: int) -> bytes:
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
