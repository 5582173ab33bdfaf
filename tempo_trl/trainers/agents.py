"""What an agent saw before each turn, as keys of states."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from numbers import Integral
from unittest.mock import patch

import numpy as np
import torch
from trl import GRPOTrainer

from tempo_trl.credit.anchors import key_of, observation_keys
from tempo_trl.credit.turns import first_steps, turn_ends, turn_starts
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.runs.messages import answer_text, answers_before_turns
from tempo_trl.trainers.report import Report
from tempo_trl.trainers.scored_rows import ScoredRows

ObservationKeyFunc = Callable[[str], str]


def sees_answers(trainer: GRPOTrainer) -> bool:
    """Whether the policy may see answers of tools or environments before a turn."""
    own_rollout = trainer.rollout_func is not None and not isinstance(trainer.rollout_func, TreeRollout)
    return bool(trainer.tools or trainer.environment_factories or own_rollout)


def refuse_a_key_of_nothing(trainer: GRPOTrainer) -> None:
    """Raise ValueError if the trainer has an `observation_key_func`, but nothing that answers the policy."""
    if trainer.observation_key_func is not None and not trainer.sees_answers:
        raise ValueError(
            "`observation_key_func` reads the answers of tools and environments, and this trainer has none. Give it "
            "`tools`, an `environment_factory` or a `rollout_func`, or leave the function out."
        )


def seen_ids(rows: ScoredRows, turns: torch.Tensor) -> torch.Tensor:
    """
    The tokens of completions as credit compares them, `(B, T)`, int64.

    Images have the same tokens whatever they show. An answer with images begins with a number for what they show, in
    place of its first token.

    Args:
        rows ([`ScoredRows`]):
            This rank's rows.
        turns (`torch.Tensor` of shape `(B, T)`, int64):
            Turn of each token; -1 for tokens of tools and environments and for padding.
    """
    ids, ends = rows.output["completion_ids"].clone(), turn_ends(turns)
    for row, turn, _, answer in _answers(rows.completions, turn_starts(turns).tolist()):
        if turn and (shown := _bytes_of_images(answer)):
            ids[row, ends[row, turn - 1] + 1] = key_of(0, shown)
    return ids


def observed_before_steps(
    trainer: GRPOTrainer,
    rows: ScoredRows,
    seen: torch.Tensor,
    turns: torch.Tensor,
    steps: torch.Tensor,
    prompts: torch.Tensor,
    report: Report,
) -> torch.Tensor:
    """
    Keys of what was seen before each step, `(B, N)`, int64; 0 where a row has no such step.

    An environment's own key comes first, alone, then `observation_key_func` of the answer with the answer's images,
    then the answer's tokens, both with the prompt. Where a step follows another within a turn, the key is one of all
    tokens so far.

    Args:
        trainer ([`~tempo_trl.TokenCreditTrainer`]):
            The trainer.
        rows ([`ScoredRows`]):
            This rank's rows.
        seen (`torch.Tensor` of shape `(B, T)`, int64):
            Their tokens as credit compares them ([`seen_ids`]).
        turns, steps (`torch.Tensor` of shape `(B, T)`, int64):
            Turn and step of each token; -1 for tokens of tools and environments and for padding.
        prompts (`torch.Tensor` of shape `(B,)`, int64):
            Numbers that are equal for equal prompts.
        report ([`Report`]):
            Keeps an error of `observation_key_func`.
    """
    keys = observation_keys(seen, steps, prompts)
    before, changed = prompts.tolist(), keys.numpy()
    with report.keeps_errors_of("reading what an agent observed"):
        for row, turn, step, answer in _answers(rows.completions, first_steps(turns, steps).tolist()):
            if own := rows.state_keys.get((row, turn)):
                changed[row, step] = key_of(0, own)  # the state, whatever the prompt says of it
            elif turn and trainer.observation_key_func is not None:
                with report.keeps_errors_of("`observation_key_func`"):
                    told = _key_of_answer(trainer, answer, rows, turns, row, turn) + _bytes_of_images(answer)
                    changed[row, step] = key_of(before[row], told)
    return keys


def _answers(completions: list, first: list[list[int]]) -> Iterator[tuple[int, int, int, list[dict]]]:
    """Row, turn, its first step and the answers before it, of each turn that sampled a token."""
    for row, completion in enumerate(completions):
        answers = answers_before_turns(completion)
        for turn, step in enumerate(first[row]):
            if step >= 0:
                yield row, turn, step, answers[turn] if turn < len(answers) else []


def _key_of_answer(trainer, answer: list[dict], rows: ScoredRows, turns: torch.Tensor, row: int, turn: int) -> bytes:
    """What `observation_key_func` makes of the text of an answer."""
    text = answer_text(answer)
    if not answer:  # a `rollout_func` may have no messages: then it is the text of the tokens between the turns
        ends, starts = turn_ends(turns[[row]])[0], turn_starts(turns[[row]])[0]
        observed = rows.completion_ids[row][ends[turn - 1] + 1 : starts[turn]]
        text = trainer._tokenizer.decode(observed, skip_special_tokens=True)
    key = trainer.observation_key_func(text)
    if not isinstance(key, str):
        got = f"{type(key).__name__} for the observation {text!r}"
        raise ValueError(f"`observation_key_func` must return a string, got {got}.")
    return b"text of an answer: " + key.encode()


def images_in(prompt: str | list[dict]) -> Iterator:
    """The images of a prompt's messages, in order."""
    for message in () if isinstance(prompt, str) else prompt:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "image":
                yield part.get("image")


def _bytes_of_images(answer: list[dict]) -> bytes:
    return b"".join(map(image_bytes, images_in(answer)))


def image_bytes(image) -> bytes:
    """What an image shows: PIL's, an array or a tensor; a path or a URL by itself."""
    numbers = image.detach().float().cpu() if isinstance(image, torch.Tensor) else image  # wherever it is
    shown, mode = np.asarray(numbers), getattr(image, "mode", None)
    if shown.dtype.kind in "OU":  # no numbers
        return repr(image).encode()
    kind = mode if isinstance(mode, str) else shown.dtype  # PIL's: the same numbers are other colours in another one
    return repr((kind, shown.shape)).encode() + shown.tobytes()


STATE_KEY = "_state_key"  # private, because TRL makes an environment's public methods tools


@contextmanager
def state_keys_read(trainer: GRPOTrainer, found: dict[tuple[int, int], bytes], report: Report) -> Iterator[None]:
    """
    Reads the environments' own keys just before each turn that is sampled in the block, by TRL or by a subclass.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        found (`dict[tuple[int, int], bytes]`):
            Gets the keys, by row and turn.
        report ([`Report`]):
            Keeps an error of a `_state_key`.
    """
    generate, play, later = trainer._generate_single_turn, trainer._tool_call_loop, []

    def generate_single_turn(*args, **kwargs):
        with report.keeps_errors_of(f"`{STATE_KEY}`"):
            environments = trainer.environments or ()
            turn, in_play = next(later[-1]) if later else (0, range(len(environments)))
            for row in in_play:
                if hasattr(environments[row], STATE_KEY):
                    found[row, turn] = _key_of_state(environments[row], row, turn)
        return generate(*args, **kwargs)

    def tool_call_loop(prompts, prompt_ids, completion_ids, completions, *args):
        later.append(_later_turns(completions, list(map(len, completions))))
        return play(prompts, prompt_ids, completion_ids, completions, *args)

    with patch.multiple(trainer, _generate_single_turn=generate_single_turn, _tool_call_loop=tool_call_loop):
        yield


def _later_turns(conversations: list[list[dict]], sizes: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Each turn within TRL's loop, which extends the conversations, and its rows: those with a new answer."""
    for turn in count(1):
        before, sizes = sizes, list(map(len, conversations))
        grown = [row for row, size in enumerate(sizes) if size > before[row]]
        yield turn, [row for row in grown if conversations[row][-1]["role"] != "assistant"]


def _key_of_state(environment: object, row: int, turn: int) -> bytes:
    """The key in bytes: equal where Python says so, 1 and True as well, but not 1 and "1"."""
    key = getattr(environment, STATE_KEY)()
    if isinstance(key, str):
        return b"text of an environment: " + key.encode(errors="surrogatepass")
    if isinstance(key, Integral | np.bool_):
        return b"number of an environment: " + str(int(key)).encode()
    raise ValueError(
        f"{type(environment).__name__}.{STATE_KEY} must return a str or an int that identifies the state, and not be "
        f"async, got {type(key).__name__} before turn {turn} of row {row}."
    )
