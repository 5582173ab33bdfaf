r"""The reward of a form: 1.0 if the completion has one box, with an answer in it, outside of thinking."""

from collections.abc import Callable

from tempo_trl.rewards.boxed import after_thinking, committed_answer, completion_text
from tempo_trl.rewards.choice_answer import plain


def format_reward(
    completions: list[list[dict[str, str]]] | list[str],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 where a completion commits to exactly one answer in a box, 0.0 where it does not.

    That is: outside of thinking `\boxed` (or `\fbox`) stands once, its braces close, and something stands in them. A
    second box, even of the same answer, a box that was cut, an empty one, and a `<think>` that stays open earn 0.0.
    Whether the answer is right does not matter.

    It is there to be watched, and the gold to be learned. TRL weighs every reward 1 unless told otherwise, so give it
    its 0 (`rewards/format_reward/mean` is logged all the same):

        reward_funcs: [math_reward, format_reward]
        reward_weights: [1.0, 0.0]

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        log_metric: TRL's callback. Receives `format/no_answer`, the share of completions without an answer in a box.
        **columns: What else TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion, never `None`.

    Note:
        TRL leaves a completion out of its group only where all rewards are None. Beside this one, of whatever
        weight, a None of `math_reward` or `choice_reward` therefore counts as 0.0.
    """
    said = [after_thinking(completion_text(completion)) for completion in completions]
    answers = [plain(committed_answer(text)) for text in said]
    if log_metric is not None and answers:
        log_metric("format/no_answer", answers.count("") / len(answers))
    return [float(answer != "" and _boxes_opened(text) == 1) for answer, text in zip(answers, said, strict=True)]


def _boxes_opened(text: str) -> int:
    return text.count(r"\boxed") + text.count(r"\fbox")
