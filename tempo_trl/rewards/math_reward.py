r"""The reward of a mathematical answer: 1.0 if the last box of the completion equals the gold's, 0.0 if not."""

import importlib.util
import logging
import time
from collections.abc import Callable

from tempo_trl.rewards.boxed import committed_answer, gold_answer
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
        solution: Gold of each completion: a worked solution with `\boxed{...}`, or a bare answer.
        log_metric: TRL's callback. Receives `math/no_answer`, the share of completions without an answer.
        **columns: What else TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` where the gold has no answer, or where the call ran out of time
        (5 s, and 0.25 s a completion) before this one was compared.

    Raises:
        ImportError: math-verify is not installed.
        ValueError: `completions` and `solution` differ in length.

    Note:
        A chat template that opens `<think>` in the prompt hides it from the completion: a box in thinking that was cut
        is then taken for the answer. Qwen3's own template leaves the tag to the model.
    """
    _require_math_verify()
    if len(solution) != len(completions):
        raise ValueError(f"got {len(solution)} solutions for {len(completions)} completions, expected one for each")
    deadline = time.monotonic() + CALL_SECONDS + COMPLETION_SECONDS * len(completions)
    answers = [committed_answer(_content(completion)) for completion in completions]
    if log_metric is not None and answers:
        log_metric("math/no_answer", answers.count("") / len(answers))
    pairs = list(zip(map(_gold, solution), answers, strict=True))
    # The completions of a group often agree: each distinct answer is compared once.
    rewards = {pair: _reward(*pair, deadline) for pair in dict.fromkeys(pairs)}
    _warn_of_ungraded(sum(rewards[pair] is None and pair[0] != "" for pair in pairs), len(pairs))
    return [rewards[pair] for pair in pairs]


def _reward(gold: str, answer: str, deadline: float) -> float | None:
    """Reward of one answer, the child asked only where the texts leave a doubt."""
    if not gold:
        return None
    if answer == gold:
        return 1.0
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    verdict = shared_grader.is_equal(gold, answer, deadline)
    return None if verdict is None else float(verdict)


def _content(completion: list[dict] | str) -> str:
    """Text of a completion; empty where an assistant said nothing, as with a tool call alone."""
    if isinstance(completion, str):
        return completion
    said = [message.get("content") for message in completion if message.get("role", "assistant") == "assistant"]
    return said[-1] if said and isinstance(said[-1], str) else ""


def _gold(solution: str) -> str:
    """Answer of a gold; empty where it has none, and where it is a text too long to be an answer."""
    gold = gold_answer(solution)
    return gold if len(gold) <= MAX_ANSWER_CHARS else ""


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
