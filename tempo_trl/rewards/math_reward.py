r"""The reward of a mathematical answer: 1.0 if the last box of the completion equals the gold's, 0.0 if not."""

import importlib.util
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from tempo_trl.rewards.boxed import committed_answer, completion_text, gold_answer
from tempo_trl.rewards.float_gold import FloatGold, float_gold, number_readings
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, shared_grader

logger = logging.getLogger(__name__)

# The last question of a call is put before its deadline and takes `ITEM_SECONDS` at most, 4 s: a single completion is
# graded within 9.25 s. The child starts in 0.4 s, and may take ten times as long on a busy machine.
CALL_SECONDS = 5.0
# Grading takes some 10 ms; this is the price of a step in which every sixteenth answer hangs for its full 4 s.
COMPLETION_SECONDS = 0.25


def math_reward(
    completions: list[list[dict[str, str]]] | list[str],
    solution: list[str],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 where a completion's final answer equals the gold, 0.0 where it does not.

    The final answer is the last `\boxed{...}` outside of thinking: text up to the last `</think>` is dropped, and a
    `<think>` that stays open, no box or an empty box is no answer. Equal is what math-verify
    (https://github.com/huggingface/Math-Verify) calls equal in its default configuration with both sides boxed, or the
    same text. An answer that hangs, crashes or fills the memory earns 0.0; the call itself neither hangs nor raises on
    it, in any thread.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        solution: Gold of each completion: a worked solution with `\boxed{...}`, or a bare answer, which may be a
            number instead of a text.
        log_metric: TRL's callback. Receives `math/no_answer`, the share of completions without an answer.
        **columns: What else TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` where the gold has no answer, or where the call ran out of time
        (5 s, and 0.25 s a completion) before this one was compared.

    Raises:
        ImportError: math-verify is not installed.
        ValueError: `completions` and `solution` differ in length.

    Note:
        An answer to a float with more than two decimals has to be a number: `\sqrt{2}` earns 0.0 against
        `1.4142135624`. Whole floats and those of one or two decimals leave such answers to math-verify.

        A chat template that opens `<think>` in the prompt hides it from the completion: a box in thinking that was cut
        is then taken for the answer. Qwen3's own template leaves the tag to the model.
    """
    _require_math_verify()
    if len(solution) != len(completions):
        raise ValueError(f"got {len(solution)} solutions for {len(completions)} completions, expected one for each")
    deadline = time.monotonic() + CALL_SECONDS + COMPLETION_SECONDS * len(completions)
    answers = [committed_answer(completion_text(completion)) for completion in completions]
    if log_metric is not None and answers:
        log_metric("math/no_answer", answers.count("") / len(answers))
    pairs = list(zip(map(_gold, solution), answers, strict=True))
    # The completions of a group often agree: each distinct answer is compared once.
    rewards = {pair: _reward(*pair, deadline) for pair in dict.fromkeys(pairs)}
    _warn_of_ungraded(sum(rewards[pair] is None and pair[0].text != "" for pair in pairs), len(pairs))
    return [rewards[pair] for pair in pairs]


class _Gold(NamedTuple):
    text: str  # empty where the row has no answer, and where it is too long to be one
    number: FloatGold | None


def _gold(solution: str | float | None) -> _Gold:
    if not isinstance(solution, str):  # AMC's and GSM-Hard's own columns hold floats
        solution = "" if solution is None or solution != solution else str(solution)
    text = gold_answer(solution)
    return _Gold(text, float_gold(solution)) if len(text) <= MAX_ANSWER_CHARS else _Gold("", None)


def _reward(gold: _Gold, answer: str, deadline: float) -> float | None:
    """Reward of one answer, the child asked only where the texts, or the numbers, leave a doubt."""
    if not gold.text:
        return None
    if answer == gold.text:
        return 1.0
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    if gold.number is not None:
        readings = number_readings(answer)
        if readings or gold.number.rounded:
            return float(gold.number.equals(readings))
    verdict = shared_grader.is_equal(gold.number.text() if gold.number else gold.text, answer, deadline)
    return None if verdict is None else float(verdict)


def _require_math_verify() -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError('math_reward compares answers with math-verify: pip install "tempo_trl[math-verify]"')


def _warn_of_ungraded(num_ungraded: int, num_completions: int) -> None:
    if num_ungraded:
        logger.warning(
            "math_reward ran out of time: %d of %d completions are ungraded (None). Their answers are slow to "
            "compare, the machine is overloaded, or the child does not start (try `python -c 'import math_verify'`).",
            num_ungraded,
            num_completions,
        )
